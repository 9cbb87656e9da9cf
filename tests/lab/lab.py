"""A lab as one thing: bring it up, use it, take it down and leave only the cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import assets, cache, disks, folders, machine_limits, network, operator_files, registry, services
from tests.lab.cgroups import Cgroup, machine_mount
from tests.lab.commands import run
from tests.lab.errors import LabError
from tests.lab.folders import LabFolder
from tests.lab.hardware import hardware
from tests.lab.naming import LabNames
from tests.lab.node import Node
from tests.lab.services import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

DEFAULT_NAME = "default"
DEFAULT_PROFILE = "lab-h100x32"
NVME_GIB = 12
KIND = "nspawn"
BOOTS_AT_ONCE = 8
NSPAWN_FOLDER = Path("/run/systemd/nspawn/propagate")  # nspawn makes an empty folder per machine there and leaves it


@dataclass
class Stopwatch:
    """How long the parts of `up` took, for people; nothing decides by it."""

    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    def mark(self, what: str) -> None:
        self.seconds[what] = round(time.monotonic() - self.began, 1)
        print(f"lab: {what} at {self.seconds[what]:.1f} s", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Lab:
    """A running lab. `Lab.up` makes or completes one, `Lab.find` takes one that is up."""

    names: LabNames
    folder: LabFolder
    nodes: tuple[Node, ...]
    services: tuple[Service, ...]

    # --- up and down

    @classmethod
    def up(
        cls,
        name: str = DEFAULT_NAME,
        profile: str = DEFAULT_PROFILE,
        nodes: int | None = None,
        *,
        docker: bool = True,
        variant: str | None = None,
        shared: bool = False,
    ) -> Lab:
        """Bring a lab up to the last answer of its last dockerd; one that is up already is completed, not made anew.

        `shared`: all nodes see one volume at /shared.
        """
        _require_root()
        folders.refuse_other_kind(name, KIND)
        names, folder = _identify(name)
        watch = Stopwatch()
        machines = hardware(profile)
        wish = {
            "profile": profile,
            "nodes": nodes or machines.nodes,
            "docker": docker,
            "variant": variant or machines.variant,
            "shared": shared,
        }
        with _exclusive(name):
            _refuse_other_shape(folder, wish)
            was_up = folder.env.exists()
            try:
                return _build(cls, names, folder, wish, watch)
            except BaseException:
                if not was_up:
                    _keep_logs(names, folder)
                    _tear_down(names, folder)
                raise

    @classmethod
    def find(cls, name: str = DEFAULT_NAME) -> Lab:
        """The lab of this name as its own record describes it."""
        names, folder = _identify(name)
        if not folder.env.exists():
            raise LabError(f"no lab named {name!r} is up", fix=f"scripts/lab up --name {name}")
        state = json.loads(folder.state.read_text())
        wish = state["wish"]
        machines = _machines(names, folder, wish)
        known = [Service(**{**each, "argv": tuple(each["argv"])}) for each in state["services"]]
        return cls(names, folder, machines, tuple(known))

    def down(self) -> None:
        """Power off, and remove everything but the cache."""
        take_down(self.names.name)

    # --- use

    @property
    def path(self) -> Path:
        """The lab's folder; `path / "work"` is where to run k3deploy."""
        return self.folder.root

    @property
    def env(self) -> dict[str, str]:
        return operator_files.read_environment(self.folder.env)

    def node(self, name: str) -> Node:
        for each in self.nodes:
            if each.name == name:
                return each
        raise LabError(f"no node {name!r} in this lab", why=f"it has {', '.join(n.name for n in self.nodes)}")

    def describe(self) -> list[str]:
        """The lab's state as lines for people."""
        lines = [f"{self.names.name}: {self.nodes[0].hardware.profile}, {len(self.nodes)} nodes, {self.path}"]
        for service in self.services:
            state = "running" if services.is_running(service.name, self.names) else "ended"
            lines.append(f"  {service.name:10}{service.url:28}{state}")
        return lines + [
            f"  {node.name:10}{node.names.address!s:16}{node.names.private_address!s:12}{node.state()}"
            for node in self.nodes
        ]

    def ssh_argv(self, node: str, *words: str) -> list[str]:
        return self.node(node).ssh_argv(*words)

    def exec_argv(self, argv: Sequence[str]) -> list[str]:
        """The argv that runs a program on the lab's network, for callers with a Popen of their own: the program gets
        the pid that they see. Goes with `exec_env`."""
        return [*network.enter(self.names.control_netns), *argv]

    def exec_env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return operator_files.inside(self.env, os.environ) | dict(extra or {})

    def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout_s: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the lab's network with the lab's environment, by default in its work folder."""
        return subprocess.run(
            self.exec_argv(argv),
            cwd=cwd or self.folder.work,
            env=self.exec_env(env),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def stop_service(self, name: str) -> None:
        """End the registry, the hub, its mirror or the S3 server, as an outage would."""
        services.stop(self.service(name).name, self.names)

    def start_service(self, name: str) -> None:
        """Start it (again); returns when it serves. The S3 server begins empty."""
        service = self.service(name)
        services.start(service, self.names, self.folder)
        services.wait(service, self.names, self.folder)

    def service(self, name: str) -> Service:
        for each in self.services:
            if each.name == name:
                return each
        raise LabError(f"no service {name!r} in this lab", why=f"it has {', '.join(s.name for s in self.services)}")


def names_of_labs() -> list[str]:
    """Every lab that has a folder, whole or not."""
    return sorted(path.name for path in folders.labs().glob("*") if path.is_dir())


def take_down(name: str) -> None:
    """Remove whatever there is of a lab, half-built ones included; fine when there is nothing."""
    _require_root()
    names, folder = _identify(name)
    with _exclusive(name):
        _tear_down(names, folder)


def _build(cls: type[Lab], names: LabNames, folder: LabFolder, wish: dict[str, object], watch: Stopwatch) -> Lab:
    ready = assets.prepare(str(wish["variant"]))
    watch.mark("cache ready")
    folder.work.mkdir(parents=True, exist_ok=True)
    if not folder.key.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {names.name}", "-f", str(folder.key))
    if wish["shared"]:
        folder.shared.mkdir(exist_ok=True)
    machines = _machines(names, folder, wish)
    planned, left_out = services.planned(folder, ready.hub_root)
    lab = cls(names, folder, machines, tuple(planned))
    state = _State(lab, wish, left_out, watch)
    state.write()
    registry.fill(folder.registry, ready.registry)
    machine_limits.claim(Cgroup(machine_mount() / names.cgroup))
    network.build(names, [node.names for node in machines])
    disks.open_pool(folder, ready.base_image)
    watch.mark("network and pool ready")
    at_once = [service for service in planned if not service.is_on_demand]
    for service in at_once:
        services.start(service, names, folder)
    _each(machines, _boot_to_ssh)
    watch.mark("ssh on all nodes")
    _each(machines, Node.wait)
    watch.mark("docker on all nodes" if wish["docker"] else "nodes ready")
    for service in at_once:
        services.wait(service, names, folder)
    folder.nodes_yaml.write_text(operator_files.nodes_yaml(node.entry() for node in machines))
    urls = {service.name: service.url for service in at_once}
    operator_files.write_environment(folder.env, operator_files.environment(names.name, KIND, urls))
    watch.mark("lab up")
    shutil.rmtree(folders.failed(names.name), ignore_errors=True)
    state.write()
    for service_name, reason in left_out.items():
        print(f"lab: no {service_name} server: {reason}", file=sys.stderr)
    return lab


def _boot_to_ssh(node: Node) -> None:
    if not disks.root_image(node.folder, node.name).exists():
        node.create()
    node.start()
    node.wait(for_docker=False)


def _each(nodes: Iterable[Node], act: Callable[[Node], None]) -> None:
    """Do it for all nodes, a few at a time; all of them finish, and all failures are told."""
    with ThreadPoolExecutor(BOOTS_AT_ONCE) as pool:
        futures = [pool.submit(partial(act, node)) for node in nodes]
    failures = [error for error in (future.exception() for future in futures) if error is not None]
    if len(failures) > 1 and all(isinstance(error, LabError) for error in failures):
        raise LabError(f"{len(failures)} nodes failed", why="\n".join(str(error) for error in failures))
    if failures:
        raise failures[0]


@dataclass(frozen=True)
class _State:
    """lab.json: what `find`, `status` and people read."""

    lab: Lab
    wish: dict[str, object]
    left_out: dict[str, str]
    watch: Stopwatch

    def write(self) -> None:
        content = {
            "schema": 1,
            "name": self.lab.names.name,
            "id": self.lab.names.lab_id,
            "kind": KIND,
            "profile": self.wish["profile"],
            "wish": self.wish,
            "control_netns": self.lab.names.control_netns,
            "services": [{**asdict(each), "argv": list(each.argv)} for each in self.lab.services],
            "left_out": self.left_out,
            "nodes": [
                {
                    "name": node.name,
                    "address": str(node.names.address),
                    "private_address": str(node.names.private_address),
                    "pid": node.leader_pid(),
                }
                for node in self.lab.nodes
            ],
            "timings_s": self.watch.seconds,
        }
        draft = self.lab.folder.state.with_suffix(".draft")
        draft.write_text(json.dumps(content, indent=1) + "\n")
        draft.rename(self.lab.folder.state)


def _machines(names: LabNames, folder: LabFolder, wish: Mapping[str, object]) -> tuple[Node, ...]:
    machines = hardware(str(wish["profile"]))
    return tuple(
        Node(
            each,
            names,
            folder,
            machines,
            has_docker=bool(wish["docker"]),
            nvme_gib=NVME_GIB,
            has_shared=bool(wish["shared"]),
        )
        for each in names.nodes(int(str(wish["nodes"])))
    )


def _identify(name: str) -> tuple[LabNames, LabFolder]:
    root = folders.labs() / name
    return LabNames(name, root), LabFolder(root)


def _refuse_other_shape(folder: LabFolder, wish: Mapping[str, object]) -> None:
    if not folder.state.exists():
        return
    there = json.loads(folder.state.read_text())["wish"]
    if there != wish:
        raise LabError(
            f"the lab {folder.root.name!r} is up in another shape",
            why=f"up: {there}; wanted: {dict(wish)}",
            fix=f"scripts/lab down --name {folder.root.name}, or another --name",
        )


@contextmanager
def _exclusive(name: str) -> Iterator[None]:
    """One `up` or `down` of a lab at a time; the lock lies beside the folder, which `down` removes."""
    lock = folders.labs() / f".{name}.lock"
    with cache.locked(lock):
        try:
            yield
        finally:
            if not (folders.labs() / name).exists():
                lock.unlink(missing_ok=True)


def _require_root() -> None:
    if os.geteuid() != 0:
        raise LabError(
            "a lab of real nodes needs root",
            why="it makes network namespaces, mounts disks and boots systemd machines",
            fix="run as root, or K3DEPLOY_LAB=loopback for a small lab of plain sshd processes",
        )


def _keep_logs(names: LabNames, folder: LabFolder) -> None:
    """A lab that does not come up is removed, but not what it said."""
    kept = folders.failed(names.name)
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for log in [*folder.logs.glob("*.log"), *folder.root.glob("nodes/*/console.log")]:
        shutil.copyfile(log, kept / f"{log.parent.name}-{log.name}")
    print(f"lab: its logs are kept in {kept}", file=sys.stderr)


def _tear_down(names: LabNames, folder: LabFolder) -> None:
    cgroup = Cgroup(machine_mount() / names.cgroup)
    cgroup.kill()
    machine_limits.release(cgroup)
    disks.close_pool(folder)
    network.remove(names)
    for leftover in NSPAWN_FOLDER.glob(f"{names.cgroup}-*"):
        leftover.rmdir()
    if folder.root.exists():
        shutil.rmtree(folder.root)
