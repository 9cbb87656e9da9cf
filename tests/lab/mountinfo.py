"""Read /proc/self/mountinfo: what is mounted where, bind mounts of a folder on itself included."""

from __future__ import annotations

from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")


def filesystem(line: str) -> str:
    return line.partition(" - ")[2].split()[0]


def mount_point(line: str) -> Path:
    return Path(line.split()[4].replace("\\040", " "))


def is_mounted(path: Path) -> bool:
    """Like Path.is_mount, which takes a folder that is mounted on itself for none."""
    return any(mount_point(line) == path for line in MOUNTINFO.read_text().splitlines())
