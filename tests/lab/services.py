"""What a deployment talks to besides nodes: the image registry, the model hub, a mirror of it, and the S3 server.

Each is a process of the lab and listens on the control namespace's address only, so that nothing but this lab's nodes,
and what `exec` runs, reaches it.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import network, registry
from tests.lab.cgroups import Cgroup, machine_mount
from tests.lab.commands import machine_env, tail
from tests.lab.deadline import wait_for
from tests.lab.errors import LabError
from tests.lab.folders import REPOSITORY
from tests.lab.naming import CONTROL_ADDRESS, HUB_PORT, MIRROR_PORT, REGISTRY_PORT, S3_PORT
from tests.lab.processes import spawn

if TYPE_CHECKING:
    from tests.lab.folders import LabFolder
    from tests.lab.naming import LabNames

READY_TIMEOUT_S = 60.0
GRACE_S = 2.0


@dataclass(frozen=True)
class Service:
    """A server of the lab: how to start it, and the request that tells it serves. Few labs need one `is_on_demand`."""

    name: str
    port: int
    health_path: str
    argv: tuple[str, ...]
    is_on_demand: bool = False

    @property
    def url(self) -> str:
        return f"http://{CONTROL_ADDRESS}:{self.port}"


def planned(folder: LabFolder, hub_root: Path) -> tuple[list[Service], dict[str, str]]:
    """The services this machine can run, and for each of the others the reason why not."""
    services = [
        Service("registry", REGISTRY_PORT, registry.HEALTH_PATH, registry.argv(folder.root, folder.registry)),
        _hub("hub", HUB_PORT, hub_root, folder),
        replace(_hub("mirror", MIRROR_PORT, hub_root, folder), is_on_demand=True),
    ]
    reason = why_no_s3()
    if reason:
        return services, {"s3": reason}
    return [*services, _module("s3", "s3", S3_PORT, "/moto-api/")], {}


def why_no_s3() -> str | None:
    """moto is a package of the development environment; a lab without it is still a lab."""
    if importlib.util.find_spec("moto") is None:
        return f"{sys.executable} has no moto; scripts/test makes an environment that has"
    return None


def _hub(name: str, port: int, root: Path, folder: LabFolder) -> Service:
    arguments = ("--root", str(root), "--log", str(folder.logs / f"{name}-requests.log"))
    return _module(name, "hub", port, "/__lab__/health", *arguments)


def _module(name: str, module: str, port: int, health_path: str, *arguments: str) -> Service:
    address = ("--host", str(CONTROL_ADDRESS), "--port", str(port))
    argv = (sys.executable, "-m", f"tests.lab.{module}", *address, *arguments)
    return Service(name, port, health_path, argv)


def start(service: Service, lab: LabNames, folder: LabFolder) -> None:
    """Start a server that isn't running; `wait` tells when it serves."""
    cgroup = _cgroup(service.name, lab)
    if cgroup.is_populated():
        return
    cgroup.create()
    env = machine_env() | {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
    argv = [*network.enter(lab.control_netns), *service.argv]
    spawn(argv, log=_log(service.name, folder), env=env, cgroup=cgroup)


def wait(service: Service, lab: LabNames, folder: LabFolder) -> None:
    def probe() -> bool:
        if not _cgroup(service.name, lab).is_populated():
            log = _log(service.name, folder)
            raise LabError(
                f"the lab's {service.name} server ended",
                why=tail(log.read_text(errors="replace")),
                fix=f"read {log}",
            )
        return network.answers_http(lab.control_netns, str(CONTROL_ADDRESS), service.port, service.health_path)

    wait_for(f"the lab's {service.name} server answers {service.health_path}", probe, READY_TIMEOUT_S)


def is_running(name: str, lab: LabNames) -> bool:
    return _cgroup(name, lab).is_populated()


def stop(name: str, lab: LabNames) -> None:
    _cgroup(name, lab).end(GRACE_S)


def _cgroup(name: str, lab: LabNames) -> Cgroup:
    return Cgroup(machine_mount() / lab.cgroup / f"service-{name}")


def _log(name: str, folder: LabFolder) -> Path:
    return folder.logs / f"{name}.log"
