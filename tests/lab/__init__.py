"""The lab: several real GPU-less "GPU nodes" on one machine, with everything a deployment talks to.

A node is a systemd-nspawn machine with its own systemd, sshd, dockerd, disks and two network interfaces, so that what
passes here has passed over real SSH, real unit files and a real Docker daemon. `scripts/lab` is the command line,
`Lab` the same thing for tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.errors import LabError
    from tests.lab.lab import Lab

__all__ = ["Lab", "LabError"]


def __getattr__(name: str) -> object:
    """Import `Lab` on first use: the servers of this package start many times and need none of it."""
    if name == "Lab":
        from tests.lab.lab import Lab

        return Lab
    if name == "LabError":
        from tests.lab.errors import LabError

        return LabError
    raise AttributeError(name)
