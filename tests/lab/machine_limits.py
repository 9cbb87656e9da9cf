"""The one setting of the machine that labs change while they are up: how many inotify instances root may have.

A booted node takes seven and all nodes count as one user, so the usual 128 end at 18 nodes, without a word from the
19th. The machine's own value is kept in /run and put back when the last lab, of any user's, goes down.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import cache
from tests.lab.errors import LabError
from tests.lab.naming import PREFIX

if TYPE_CHECKING:
    from tests.lab.cgroups import Cgroup

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
OWN_VALUE = Path(f"/run/{PREFIX}-inotify")
LOCK = Path(f"/run/{PREFIX}.lock")
ENOUGH = 2048


def claim(lab: Cgroup) -> None:
    """Make the lab's cgroup, by which others see that it is there, and raise the limit if it is low."""
    with cache.locked(LOCK):
        lab.create()
        now = int(INOTIFY.read_text())
        if now >= ENOUGH:
            return
        try:
            OWN_VALUE.write_text(str(now))
            INOTIFY.write_text(str(ENOUGH))
        except OSError as err:
            raise LabError(
                f"this machine allows {now} inotify instances, and they can't be raised: {err.strerror}",
                why="each node's systemd, dbus and containerd take seven",
                fix=f"sysctl -w fs.inotify.max_user_instances={ENOUGH}",
            ) from err


def release(lab: Cgroup) -> None:
    """Put the machine's own value back once no lab is left."""
    with cache.locked(LOCK):
        if not any(lab.path.parent.glob(f"{PREFIX}-*")):
            if OWN_VALUE.exists():
                INOTIFY.write_text(OWN_VALUE.read_text())
                OWN_VALUE.unlink()
            LOCK.unlink()
