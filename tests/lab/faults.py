"""What happens to rented machines, done to a node of the lab from outside it, as it happens in the field."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab import network
from tests.lab.deadline import wait_for
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.node import Node

REBOOT_SIGNAL = signal.SIGRTMIN + 5  # systemd: start reboot.target
SHUTDOWN_TIMEOUT_S = 120.0
FILL_FILE = "lab-fill"
DISKS = {"nvme": "/ephemeral", "root": "/"}
BLOCK_BYTES = 4096
GPUS_FILE = "/etc/lab/gpus.json"


@dataclass(frozen=True)
class Fault:
    """A kind of trouble; `usage` names its arguments for the command line."""

    summary: str
    act: Callable[[Node, list[str]], None]
    usage: str = ""


def inflict(node: Node, kind: str, arguments: list[str]) -> None:
    if kind not in FAULTS:
        raise LabError(
            f"no fault {kind!r}", why=f"known: {', '.join(FAULTS)}", fix=f"scripts/lab fault {node.name} KIND"
        )
    FAULTS[kind].act(node, arguments)


def _link_down(node: Node, _: list[str]) -> None:
    network.set_cables(node.lab, node.names, "down")


def _link_up(node: Node, _: list[str]) -> None:
    network.set_cables(node.lab, node.names, "up")


def _kill(node: Node, _: list[str]) -> None:
    """The cables go too: a machine without power does not even refuse a connection."""
    network.set_cables(node.lab, node.names, "down")
    node.cut_power()


def _start(node: Node, _: list[str]) -> None:
    network.set_cables(node.lab, node.names, "up")
    node.start()
    node.wait()


def _reboot(node: Node, _: list[str]) -> None:
    before = node.leader_pid()
    if before is None:
        raise LabError(f"{node.name} is not running", fix=f"scripts/lab fault {node.name} start")
    os.kill(before, REBOOT_SIGNAL)
    wait_for(f"{node.name} shut down", lambda: node.leader_pid() != before, SHUTDOWN_TIMEOUT_S)
    node.wait()


def _preempt(node: Node, arguments: list[str]) -> None:
    """The address now belongs to another machine: fresh root, blank NVMe, so a host key nobody has seen."""
    _kill(node, arguments)
    node.renew_root()
    node.renew_nvme()
    _start(node, arguments)


def _wipe_nvme(node: Node, arguments: list[str]) -> None:
    """Stopped and started by the provider: the root disk is a network volume, the local NVMe is another one."""
    _kill(node, arguments)
    node.renew_nvme()
    _start(node, arguments)


def _disk_fill(node: Node, arguments: list[str]) -> None:
    """Reserve what is free: writers get a real ENOSPC, while the lab's machine stores nothing for it."""
    with _fill_path(node, arguments).open("ab") as handle:
        offset = handle.tell()
        stats = os.fstatvfs(handle.fileno())
        chunk = max(stats.f_bavail * stats.f_frsize, BLOCK_BYTES)
        while chunk >= BLOCK_BYTES:
            try:
                os.posix_fallocate(handle.fileno(), offset, chunk)
            except OSError as err:
                if err.errno != errno.ENOSPC:
                    raise
                chunk //= 2
            else:
                offset += chunk


def _disk_free(node: Node, arguments: list[str]) -> None:
    _fill_path(node, arguments).unlink(missing_ok=True)


def _fill_path(node: Node, arguments: list[str]) -> Path:
    disk = arguments[0] if arguments else "nvme"
    if disk not in DISKS:
        raise LabError(f"no disk {disk!r}", fix=f"one of {', '.join(DISKS)}")
    return node.path_inside(DISKS[disk]) / FILL_FILE


def _gpu_lost(node: Node, arguments: list[str]) -> None:
    """One GPU fell off the bus: nvidia-smi reports it as it does in the field."""
    lost = int(arguments[0]) if arguments else node.hardware.gpus_per_node - 1
    _set_gpu_faults(node, {"lost": [lost]})


def _gpu_occupied(node: Node, arguments: list[str]) -> None:
    """A process that is not ours holds memory: what a previous tenant's crashed engine leaves."""
    index = arguments[0] if arguments else "0"
    mib = int(arguments[1]) if len(arguments) > 1 else node.hardware.gpu_memory_mib // 2
    _set_gpu_faults(node, {"occupied": {index: mib}})


def _driver_lost(node: Node, _: list[str]) -> None:
    _set_gpu_faults(node, {"no_driver": True})


def _gpu_back(node: Node, _: list[str]) -> None:
    _set_gpu_faults(node, {})


def _set_gpu_faults(node: Node, faults: dict[str, object]) -> None:
    """The node's nvidia-smi reads the file at each call."""
    content = {**node.hardware.gpus_json(), "faults": faults}
    node.path_inside(GPUS_FILE).write_text(json.dumps(content, indent=1) + "\n")


def _rate(node: Node, arguments: list[str]) -> None:
    with contextlib.suppress(ValueError, IndexError):
        mbit = int(arguments[0])
        interface = arguments[1] if len(arguments) > 1 else network.PUBLIC_INTERFACE
        if mbit >= 0 and interface in network.BRIDGES:
            network.shape(node.lab, node.names, interface, mbit)
            return
    raise LabError(f"rate {' '.join(arguments)}", fix=f"rate MBIT [{'|'.join(network.BRIDGES)}]; 0 lifts the limit")


FAULTS = {
    "link-down": Fault("pull both network cables", _link_down),
    "link-up": Fault("plug them in again", _link_up),
    "kill": Fault("cut the power", _kill),
    "start": Fault("power on, and wait until it answers", _start),
    "reboot": Fault("an orderly reboot", _reboot),
    "preempt": Fault("another machine at the same address: fresh root, blank NVMe, new host key", _preempt),
    "wipe-nvme": Fault("stop, swap the NVMe for a blank one, start", _wipe_nvme),
    "disk-fill": Fault("leave no free block on a disk", _disk_fill, "[nvme|root]"),
    "disk-free": Fault("undo disk-fill", _disk_free, "[nvme|root]"),
    "gpu-lost": Fault("a GPU falls off the bus", _gpu_lost, "[INDEX]"),
    "gpu-occupied": Fault("a stranger's process holds GPU memory", _gpu_occupied, "[INDEX [MIB]]"),
    "driver-lost": Fault("nvidia-smi can't talk to the driver", _driver_lost),
    "gpu-back": Fault("all GPUs and the driver are well again", _gpu_back),
    "rate": Fault("limit a cable, both ways; 0 lifts it", _rate, "MBIT [eth0|ens6]"),
}
