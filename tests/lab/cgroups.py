"""A cgroup per lab and node: it holds every process of theirs, so a power cut is one write and nothing survives it.

The lab needs cgroup version 2, which is there on plain machines (at /sys/fs/cgroup) and on hybrid ones (beside the
version 1 controllers, at /sys/fs/cgroup/unified).
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.lab.deadline import wait_for
from tests.lab.errors import LabError
from tests.lab.mountinfo import MOUNTINFO, filesystem, mount_point

STANDARD_MOUNT = Path("/sys/fs/cgroup")
KILL_TIMEOUT_S = 30.0


def cgroup2_mount(mountinfo: str) -> Path:
    """Find the cgroup2 mount in the text of /proc/self/mountinfo, the standard place before any other."""
    found = [mount_point(line) for line in mountinfo.splitlines() if filesystem(line) == "cgroup2"]
    if not found:
        raise LabError(
            "this machine has no cgroup2 file system mounted",
            why="the lab's nodes run systemd, which gets a cgroup2 subtree each",
            fix="boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup/unified",
        )
    return STANDARD_MOUNT if STANDARD_MOUNT in found else found[0]


def machine_mount() -> Path:
    return cgroup2_mount(MOUNTINFO.read_text())


@dataclass(frozen=True)
class Cgroup:
    """One cgroup by its path in the file system."""

    path: Path

    def child(self, name: str) -> Cgroup:
        return Cgroup(self.path / name)

    def create(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def pass_controllers_down(self) -> None:
        """Offer our controllers to the children, so that `docker run --memory` works in a node where it can."""
        controllers = (self.path / "cgroup.controllers").read_text().split()
        (self.path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))

    def pids(self) -> list[int]:
        try:
            return [int(line) for line in (self.path / "cgroup.procs").read_text().split()]
        except (FileNotFoundError, OSError):
            return []

    def is_populated(self) -> bool:
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except (FileNotFoundError, OSError):
            return False

    def memory_bytes(self) -> int | None:
        """What the subtree uses; None where version 1 owns the memory controller."""
        try:
            return int((self.path / "memory.current").read_text())
        except FileNotFoundError:
            return None

    def all_pids(self) -> list[int]:
        """Every process of the subtree, by its pid on the machine."""
        below = [Cgroup(path) for path in self.path.rglob("*") if path.is_dir()]
        return [pid for cgroup in (self, *below) for pid in cgroup.pids()]

    def end(self, grace_s: float) -> None:
        """SIGTERM to every process, time to follow it, then `kill`."""
        for pid in self.all_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(LabError):
            wait_for(f"{self.path} empty", lambda: not self.is_populated(), grace_s, poll_s=0.02)
        self.kill()

    def kill(self) -> None:
        """SIGKILL every process of the subtree at once, then remove it; fine when there is nothing."""
        if not self.path.is_dir():
            return
        (self.path / "cgroup.kill").write_text("1")
        wait_for(f"{self.path} empty after a kill", lambda: not self.is_populated(), KILL_TIMEOUT_S, poll_s=0.02)
        self._remove()

    def _remove(self) -> None:
        for folder in sorted((p for p in self.path.rglob("*") if p.is_dir()), reverse=True):
            folder.rmdir()
        self.path.rmdir()
