"""Four machines with a Docker each, in memory: what the engine's phases ask and do meets a state that answers truly."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from k3deploy.adapters.profiles import load_profile
from k3deploy.contracts import Services
from k3deploy.domain import events as ev
from k3deploy.domain.command import Command, CommandResult, Program, Question
from k3deploy.domain.names import NodeName, RunId
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.run import Keys
from k3deploy.domain.topology import Topology, place
from k3deploy.phases.engine_site import EngineSite
from k3deploy.runner.graph import AnyPhase, Unit
from k3deploy.runner.marker import Markers
from k3deploy.runner.unit import Ended, UnitRunner
from k3deploy.testing import FakeClock, FakeNodes, FakeSurvey, MemoryPins, Recorder, services

RUN = RunId("h100x32-20261130-120000-abcd")
FOLDER = f"/ephemeral/k3deploy/{RUN}"
DIGEST = "sha256:" + "d" * 64
IMAGE = f"lmsysorg/sglang@{DIGEST}"
STARTED_AT = 1_000.0

_ids = itertools.count(1)
_WITHOUT_VALUE = {"-d"}


@dataclass
class Container:
    """As `docker run` made it."""

    id: str
    image: str
    cmd: list[str]
    env: list[str]
    status: str = "running"
    exit_code: int = 0
    oom_killed: bool = False
    log: list[tuple[float, str]] = field(default_factory=list)

    @property
    def body(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": "sgl",
            "image": self.image,
            "image_id": "sha256:" + "1" * 64,
            "cmd": self.cmd,
            "env": ["PATH=/usr/bin", *self.env],
            "status": self.status,
            "exit_code": self.exit_code,
            "oom_killed": self.oom_killed,
            "error": "",
            "created_at": STARTED_AT,
            "started": f"2026-11-30T12:00:00.{self.id[:9]}Z",
            "started_at": STARTED_AT,
            "finished_at": 0.0 if self.status == "running" else STARTED_AT + 50,
        }


@dataclass
class Machine:
    """One node's state. `log` is what its next container will print; `health` what /health answers."""

    name: str
    address: str
    container: Container | None = None
    files: dict[str, Any] = field(default_factory=dict)
    log: list[tuple[float, str]] = field(default_factory=list)
    listeners: list[dict[str, Any]] = field(default_factory=list)
    other_claims: list[str] = field(default_factory=list)
    gpu_used_mib: int = 70_960
    gpu_processes: list[dict[str, Any]] = field(default_factory=list)
    boot_id: str = "boot-1"
    health: int = 200
    model: str = "moonshotai/Kimi-K3"
    max_model_len: int = 1_048_576
    ends: dict[str, Any] | None = None  # how the log's stream ends; None: the container goes on
    refuses_run: CommandResult | None = None
    removal_takes: int = 0  # looks at a removed container until it is gone
    jobs: list[dict[str, str]] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)
    weights_bytes: int | None = None
    acts: list[str] = field(default_factory=list)  # in the order in which they came
    docker: str = "running"

    def run(self, command: Command) -> CommandResult:
        words = list(command.argv)
        assert command.sudo, words
        self.acts.append(" ".join(words[:2]))
        if words[:2] == ["docker", "run"]:
            return self._docker_run(words[2:])
        if words[:2] == ["docker", "stop"]:
            if self.container is not None and self.container.id == words[-1] and self.container.status == "running":
                self.container.status, self.container.exit_code = "exited", 0
            return CommandResult(0, words[-1] + "\n", "")
        if words[:2] == ["docker", "rm"]:
            if self.container is None or self.container.id != words[-1]:
                return CommandResult(1, "", f"Error response from daemon: No such container: {words[-1]}")
            if self.removal_takes == 0:
                self.container = None
            return CommandResult(0, words[-1] + "\n", "")
        raise AssertionError(words)

    def _docker_run(self, words: list[str]) -> CommandResult:
        if self.refuses_run is not None:
            return self.refuses_run
        env, at = [], 0
        while words[at].startswith("-"):
            if words[at] == "--env":
                env.append(words[at + 1])
            at += 1 if words[at] in _WITHOUT_VALUE else 2
        if self.container is not None:
            return CommandResult(
                125, "", 'docker: Error response from daemon: Conflict. The container name "/sgl" is in use'
            )
        self.container = Container(f"{next(_ids):064d}", words[at], words[at + 1 :], env, log=self.log)
        return CommandResult(0, self.container.id + "\n", "")

    def call(self, program: Program) -> Mapping[str, Any]:
        self.acts.append(program.entry)
        args = dict(program.args)
        if program.entry == "run_file":
            for path in args.get("remove", ()):
                self.files.pop(path, None)
            self.files.update(args.get("write", {}))
            return {"written": [], "removed": []}
        if program.entry == "api_key":
            is_new = args["path"] not in self.files and "file" in program.secrets
            if is_new:
                self.files[args["path"]] = program.secrets["file"].reveal()
            text = self.files.get(args["path"], "")
            shown = {"key": text.split('"')[1]} if args.get("show") else {}
            return {"path": args["path"], "is_new": is_new, **shown}
        if program.entry == "engine_logs":
            assert self.container is not None
            return self.ends or {"status": "running", "exit_code": 0}
        if program.entry == "job_stop":
            for job in self.jobs:
                if job["dir"] == args["dir"]:
                    job["state"] = "finished"
            return {"was_running": True}
        if program.entry == "run_clear":
            for path in [path for path in self.files if path.startswith(args["folder"])]:
                del self.files[path]
            self.jobs = []
            return {"removed": [], "is_gone": not self.journal}
        if program.entry == "weights_purge":
            freed, self.weights_bytes = self.weights_bytes or 0, None
            return {"freed_bytes": freed, "removed": []}
        if program.entry == "storage_restore":
            self.journal = []
            self.files = {}
            return {"restored": [], "removed": [], "kept": []}
        if program.entry == "logs_export":
            files = (["engine"] if args["container"] else []) + [f"job-{name}" for name in args["jobs"]]
            return {"files": {name: {"lines": 1, "left_out_bytes": 0} for name in files}, "missing": {}}
        raise AssertionError(program.entry)

    def section(self, question: Question) -> Mapping[str, Any]:
        return {
            "facts": self.facts,
            "container": self.seen,
            "engine": self.engine,
            "holdings": self.holdings,
        }[question.section]()

    def seen(self) -> Mapping[str, Any]:
        body = self.container.body if self.container else None
        if self.removal_takes and "docker rm" in self.acts:
            self.removal_takes -= 1
            if self.removal_takes == 0:
                self.container = None
        return {
            "daemon": self.docker,
            "why": "" if self.docker == "running" else "no socket",
            "container": body,
            "now": STARTED_AT,
            "launch": self.files.get(f"{FOLDER}/launch.json"),
            "recorded": self.files.get(f"{FOLDER}/container.json"),
            "other_claims": self.other_claims,
            "listeners": self.listeners,
        }

    def engine(self) -> Mapping[str, Any]:
        found = self.container
        base = {
            "daemon": "running",
            "why": "",
            "container": found.body if found else None,
            "ready": self.files.get(f"{FOLDER}/ready.json"),
            "chat": self.files.get(f"{FOLDER}/chat.json"),
        }
        if found is None or found.status != "running":
            return {**base, "node_rank": None, "health": None, "models": None}
        rank = int(found.cmd[found.cmd.index("--node-rank") + 1]) if "--node-rank" in found.cmd else 0
        card = {"id": self.model, "max_model_len": self.max_model_len}
        return {
            **base,
            "node_rank": rank,
            "health": {"status": self.health, "body": None, "error": "", "seconds": 0.1},
            "models": {"status": 200, "body": {"data": [card]}, "error": "", "seconds": 0.1} if rank == 0 else None,
        }

    def holdings(self) -> Mapping[str, Any]:
        names = {path.removeprefix(f"{FOLDER}/").split("/")[0] for path in self.files if path.startswith(FOLDER)}
        if self.journal:
            names.add("created.json")
        if self.jobs:
            names.add("jobs")
        return {
            "exists": bool(names),
            "jobs": self.jobs,
            "files": sorted(names),
            "journal": self.journal,
            "has_backup": any(entry["kind"] == "daemon-json" for entry in self.journal),
            "weights": {"path": "/ephemeral/hf/hub/models--moonshotai--Kimi-K3", "bytes": self.weights_bytes},
        }

    def facts(self) -> Mapping[str, Any]:
        return facts_body(self.address, boot_id=self.boot_id, used_mib=self.gpu_used_mib, processes=self.gpu_processes)


def facts_body(address: str, *, boot_id: str, used_mib: int, processes: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer of the facts section, of which the engine's phases read network, identity and GPUs."""
    return {
        "os": {"id": "ubuntu", "version": "24.04", "title": "Ubuntu 24.04"},
        "kernel": "6.8.0",
        "architecture": "x86_64",
        "python": {"version": "3.12.3", "missing_modules": []},
        "hostname": address,
        "epoch_s": STARTED_AT,
        "machine_id": f"machine-{address}",
        "boot_id": boot_id,
        "login": {"name": "ubuntu", "uid": 1000, "gid": 1000, "home": "/home/ubuntu"},
        "is_root": True,
        "pid_1": "systemd",
        "has_systemd": True,
        "is_container": False,
        "memory_bytes": 2**40,
        "memory_available_bytes": 2**40,
        "limits": {"memlock_bytes": None},
        "tools": {},
        "interfaces": [
            {
                "name": "ens6",
                "kind": None,
                "is_up": True,
                "mtu": 1500,
                "addresses": [{"address": address, "prefix": 24, "is_secondary": False}],
            }
        ],
        "default_address": address,
        "hcas": [],
        "port_range": [32768, 60999],
        "gpus": [
            {
                "index": index,
                "name": "NVIDIA H100 PCIe",
                "uuid": f"GPU-{index}",
                "memory_total_mib": 81_559,
                "memory_used_mib": used_mib,
                "driver": "570.1",
                "pci": f"0000:0{index}:00.0",
            }
            for index in range(8)
        ],
        "gpu_processes": processes,
        "nvidia_smi": {"exit_code": 0, "words": ""},
        "pci_gpus": 8,
        "mounts": [],
        "storage": None,
        "paths": {},
        "weights_present_bytes": None,
        "disks": [],
        "reasons": {},
    }


@dataclass
class World:
    machines: dict[NodeName, Machine]
    profile: Profile
    topology: Topology
    nodes_file: NodesFile
    nodes: FakeNodes
    svc: Services
    clock: FakeClock

    @property
    def site(self) -> EngineSite:
        return EngineSite(self.profile, self.topology, self.nodes_file, RUN)

    def __getitem__(self, name: str) -> Machine:
        return self.machines[NodeName(name)]

    @property
    def names(self) -> tuple[NodeName, ...]:
        return tuple(self.machines)

    def programs(self, entry: str) -> list[tuple[str, Program]]:
        return [(str(node.name), p) for node in self.nodes.each() for p in node.programs if p.entry == entry]


PROGRAMS = (
    "run_file",
    "api_key",
    "engine_logs",
    "job_stop",
    "run_clear",
    "weights_purge",
    "storage_restore",
    "logs_export",
)


@cache
def _loaded(profile: str) -> Profile:
    return load_profile(str(Path("configs") / f"{profile}.yaml"))


def world(*, is_public: bool = False, nodes: int = 4, profile: str = "h100x32", pinned: bool = True) -> World:
    """The shipped four-node profile on machines gpu-01 to gpu-04 at 10.0.0.1 to 10.0.0.4."""
    loaded = _loaded(profile)
    if is_public:
        loaded = loaded.model_copy(update={"network": loaded.network.model_copy(update={"api": "public"})})
    names = [f"gpu-0{number}" for number in range(1, nodes + 1)]
    machines = {NodeName(name): Machine(name, f"10.0.0.{at}") for at, name in enumerate(names, start=1)}
    fake_nodes, survey, clock = FakeNodes(*names), FakeSurvey(), FakeClock()
    for node in fake_nodes.each():
        machine = machines[node.name]
        node.on_command(("docker",), machine.run)
        for entry in PROGRAMS:
            node.on_program(entry, machine.call)
        for section in ("facts", "container", "engine", "holdings"):
            survey.on(section, machine.section, node=str(node.name))
    pins = MemoryPins(
        **(
            {"image": {"asked": "x", "repository": "lmsysorg/sglang", "digest": DIGEST, "platforms": []}}
            if pinned
            else {}
        )
    )
    entries = tuple(NodeEntry(name=name, address=f"203.0.113.{at}") for at, name in enumerate(names, start=1))
    return World(
        machines,
        loaded,
        place(loaded, tuple((NodeName(name), None) for name in names)),
        NodesFile(nodes=entries),
        fake_nodes,
        services(nodes=fake_nodes, survey=survey, pins=pins, clock=clock),
        clock,
    )


def script_log(world: World, name: str, *batches: tuple[float, list[tuple[float, str]]]) -> None:
    """What following this node's container says: batches of (node's clock, lines)."""
    machine, node = world[name], world.nodes[name]
    progress = [{"now": now, "lines": [list(line) for line in lines]} for now, lines in batches]
    node.on_program("engine_logs", machine.call, progress=progress)


def run_phase(world: World, phase: AnyPhase, *, is_dry: bool = False) -> tuple[list[Ended], Recorder]:
    """Every unit of one phase, by the real runner's unit. Markers are kept in the world's store."""
    recorder = Recorder()
    runner = UnitRunner(world.svc, Markers(world.svc.store, Keys(RUN)), recorder, is_dry=is_dry)
    return [runner.run(Unit(phase, target)) for target in phase.targets()], recorder


def steps(recorder: Recorder) -> list[str]:
    return [event.step for event in recorder.of(ev.StepStarted)]
