"""The lab without root: one sshd per node on a loopback port, for a first look on a laptop.

What it covers: SSH, host keys, programs that run on a node, files in its home, the hub, the S3 server.
What it does not: Docker, systemd, networks, disks and GPUs of the nodes' own. So a deployment stops where it needs one
of these, and a test that needs one has to say so instead of passing here.

It never touches the machine. Without root it could not but for two ways, which are closed: a node's `sudo` grants
nothing, and the lab refuses to start where the caller could reach the machine's own Docker. With root (only when asked
for) the nodes run where all but their folder is read-only.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import assets, folders, operator_files, services
from tests.lab.commands import SYSTEM_PATH, machine_env, run, tail
from tests.lab.deadline import wait_for
from tests.lab.errors import LabError
from tests.lab.folders import REPOSITORY, LabFolder
from tests.lab.hardware import hardware
from tests.lab.processes import Started, spawn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KIND = "loopback"
HOST = "127.0.0.1"
FIRST_PORT = 22101
PORTS_PER_LAB = 100
LABS = 50
SERVICE_PORTS = {"hub": 90, "s3": 91}  # above the lab's first port
SHIMS = Path(__file__).with_name("loopback_files")
SHIMMED = (
    "apt-get",
    "docker",
    "dockerd",
    "mount",
    "nvidia-smi",
    "sudo",
    "sysctl",
    "systemctl",
    "systemd-run",
    "umount",
)
NVIDIA_SMI = Path(__file__).with_name("nvidia_smi.py")
DOCKER_SOCKET = Path("/var/run/docker.sock")
READY_TIMEOUT_S = 30.0
GRACE_S = 3.0
NOT_COVERED = "no Docker, no systemd, no networks or disks of the nodes' own, no engine"


def is_wanted() -> bool:
    """When asked for, or when there is no choice."""
    return os.environ.get("K3DEPLOY_LAB") == KIND or os.geteuid() != 0


@dataclass(frozen=True)
class LoopbackLab:
    """A lab of plain sshd processes; the part of `Lab`'s interface that can be had so."""

    name: str
    folder: LabFolder
    ports: Mapping[str, int]
    processes: Mapping[str, Started]

    @property
    def path(self) -> Path:
        return self.folder.root

    def exec_argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def exec_env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        env = operator_files.read_environment(self.folder.env)
        return operator_files.inside(env, os.environ) | dict(extra or {})

    def ssh_argv(self, node: str, *words: str) -> list[str]:
        if node not in self.ports:
            raise LabError(f"no node {node!r} in this lab", why=f"it has {', '.join(self.ports)}")
        options = ["-o", f"UserKnownHostsFile={self.folder.known_hosts}", "-o", "StrictHostKeyChecking=yes"]
        quiet = ["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR"]
        where = ["-i", str(self.folder.key), "-p", str(self.ports[node]), f"{user()}@{HOST}"]
        return ["ssh", "-F", "/dev/null", *options, *quiet, *where, *words]

    def describe(self) -> list[str]:
        lines = [f"{self.name}: loopback, {len(self.ports)} nodes, {self.path}", f"  ({NOT_COVERED})"]
        return lines + [
            f"  {each:10}{'running' if process.is_alive() else 'ended'}" for each, process in self.processes.items()
        ]


def user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def up(name: str, profile: str, nodes: int | None, variant: str | None) -> LoopbackLab:
    """Start the processes of a lab, or return the one that is up."""
    _refuse_where_unsafe()
    folders.refuse_other_kind(name, KIND)
    machines = hardware(profile)
    folder = LabFolder(folders.labs() / name)
    if folder.state.exists():
        return find(name)
    print(f"lab: loopback variant: {NOT_COVERED}", file=sys.stderr)
    hub_root = assets.hub_root(variant or machines.variant)
    folder.work.mkdir(parents=True)
    folder.logs.mkdir()
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {name}", "-f", str(folder.key))
    first = _free_ports()
    ports = {f"gpu-{index + 1:02d}": first + index for index in range(nodes or machines.nodes)}
    processes: dict[str, Started] = {}
    try:
        for node, port in ports.items():
            _furnish(folder, node, port, machines.gpus_json())
            processes[node] = _start_sshd(folder, node)
        processes["hub"] = _start_service(folder, "hub", first + SERVICE_PORTS["hub"], "--root", str(hub_root))
        if services.why_no_s3() is None:
            processes["s3"] = _start_service(folder, "s3", first + SERVICE_PORTS["s3"])
        lab = LoopbackLab(name, folder, ports, processes)
        _write_files(lab, first)
        for each, process in processes.items():
            port = ports[each] if each in ports else first + SERVICE_PORTS[each]
            wait_for(f"{each} answers", partial(_answers, folder, each, process, port), READY_TIMEOUT_S)
    except BaseException:
        for process in processes.values():
            process.end(GRACE_S)
        shutil.rmtree(folder.root)
        raise
    return lab


def find(name: str) -> LoopbackLab:
    folder = LabFolder(folders.labs() / name)
    state = json.loads(folder.state.read_text())
    processes = {each: Started(**process) for each, process in state["processes"].items()}
    return LoopbackLab(name, folder, state["ports"], processes)


def take_down(name: str) -> None:
    """End the processes that this lab started, and only those; remove its folder."""
    lab = find(name)
    for process in lab.processes.values():
        process.end(GRACE_S)
    shutil.rmtree(lab.path)


def _refuse_where_unsafe() -> None:
    if os.geteuid() != 0 and os.access(DOCKER_SOCKET, os.W_OK):
        raise LabError(
            f"you may write to {DOCKER_SOCKET}",
            why="a program under test, run on a node of a loopback lab, would reach this machine's own Docker",
            fix="use a user outside the docker group, or run scripts/lab as root for a lab of real nodes",
        )


def _furnish(folder: LabFolder, node: str, port: int, gpus: Mapping[str, object]) -> None:
    own = folder.node(node)
    (own / "bin").mkdir(parents=True)
    (own / "home").mkdir()
    for name in SHIMMED:
        (own / "bin" / name).symlink_to(SHIMS / "shim")
    (own / "gpus.json").write_text(json.dumps(gpus, indent=1) + "\n")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", node, "-f", str(own / "host_key"))
    variables = {
        "HOME": own / "home",
        "LAB_GPUS": own / "gpus.json",
        "LAB_NVIDIA_SMI": NVIDIA_SMI,
        "LAB_PYTHON": sys.executable,
        "PATH": f"{own / 'bin'}:{SYSTEM_PATH}",
    }
    lines = [
        f"Port {port}",
        f"ListenAddress {HOST}",
        f"HostKey {own / 'host_key'}",
        "PidFile none",
        f"AuthorizedKeysFile {folder.key}.pub",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        f"Subsystem sftp internal-sftp -d {own / 'home'}",
        "SetEnv " + " ".join(f'{name}="{value}"' for name, value in variables.items()),
    ]
    (own / "sshd_config").write_text("\n".join(lines) + "\n")


def _start_sshd(folder: LabFolder, node: str) -> Started:
    own = folder.node(node)
    sshd = shutil.which("sshd", path=machine_env()["PATH"])
    if sshd is None:
        raise LabError("sshd is not installed", fix="install openssh-server (its own service need not run)")
    argv = [sshd, "-D", "-e", "-f", str(own / "sshd_config")]
    if os.geteuid() == 0:
        argv = ["unshare", "--mount", "--propagation=private", str(SHIMS / "enclose"), str(folder.root), *argv]
    return spawn(argv, log=own / "log", env=machine_env())


def _start_service(folder: LabFolder, service: str, port: int, *arguments: str) -> Started:
    argv = [sys.executable, "-m", f"tests.lab.{service}", "--host", HOST, "--port", str(port), *arguments]
    return spawn(argv, log=folder.logs / f"{service}.log", env=machine_env() | {"PYTHONPATH": str(REPOSITORY)})


def _answers(folder: LabFolder, name: str, process: Started, port: int) -> bool:
    if not process.is_alive():
        log = folder.logs / f"{name}.log" if name in SERVICE_PORTS else folder.node(name) / "log"
        raise LabError(f"{name} ended", why=tail(log.read_text(errors="replace")))
    with socket.socket() as connection:
        return connection.connect_ex((HOST, port)) == 0


def _free_ports() -> int:
    """The first port of a block of which none of the ports that matter is taken."""
    for first in range(FIRST_PORT, FIRST_PORT + LABS * PORTS_PER_LAB, PORTS_PER_LAB):
        with socket.socket() as probe, socket.socket() as other:
            try:
                probe.bind((HOST, first))
                other.bind((HOST, first + SERVICE_PORTS["hub"]))
            except OSError:
                continue
            return first
    raise LabError("no free ports for a loopback lab", why=f"tried {LABS} blocks from {FIRST_PORT}")


def _write_files(lab: LoopbackLab, first: int) -> None:
    keys = {node: (lab.folder.node(node) / "host_key.pub").read_text().split()[:2] for node in lab.ports}
    lab.folder.known_hosts.write_text(
        "".join(f"[{HOST}]:{lab.ports[node]} {' '.join(key)}\n" for node, key in keys.items())
    )
    entries = [
        operator_files.NodeEntry(node, HOST, user(), lab.folder.key, " ".join(key), lab.ports[node])
        for node, key in keys.items()
    ]
    lab.folder.nodes_yaml.write_text(operator_files.nodes_yaml(entries))
    urls = {
        service: f"http://{HOST}:{first + offset}"
        for service, offset in SERVICE_PORTS.items()
        if service in lab.processes
    }
    operator_files.write_environment(lab.folder.env, operator_files.environment(lab.name, KIND, urls))
    content = {
        "schema": 1,
        "name": lab.name,
        "kind": KIND,
        "ports": lab.ports,
        "processes": {each: asdict(process) for each, process in lab.processes.items()},
    }
    lab.folder.state.write_text(json.dumps(content, indent=1) + "\n")
