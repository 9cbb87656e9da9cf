"""How much memory the machine has, and how much of it could still be used: caches count as free, as they give way."""

import os

from k3deploy.remote.reading import Unreadable, text

# Folder, limit, use, and the line of memory.stat that counts the page cache, in cgroup versions 2 and 1. A machine that
# is a container sees its own limit at the top of the tree; elsewhere the top has none.
_CGROUPS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "file"),
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
)


def memory_bytes(root: str = "/") -> int:
    return _meminfo(root, "MemTotal")


def memory_available_bytes(root: str = "/") -> int:
    """MemAvailable, in which pages reserved as huge pages do not count, or what a cgroup leaves if that is less."""
    return min([_meminfo(root, "MemAvailable"), *_cgroup_rooms(root)])


def _meminfo(root: str, name: str) -> int:
    for row in text(os.path.join(root, "proc/meminfo")).splitlines():
        if row.startswith(name + ":"):
            return int(row.split()[1]) * 1024
    raise Unreadable(f"/proc/meminfo has no {name}")


def _cgroup_rooms(root: str) -> list[int]:
    rooms = []
    for folder, limit, use, cache in _CGROUPS:
        folder = os.path.join(root, folder)
        if not os.path.exists(os.path.join(folder, limit)):
            continue
        limit_text = text(os.path.join(folder, limit)).strip()
        if limit_text == "max":
            continue
        counts = dict(row.split() for row in text(os.path.join(folder, "memory.stat")).splitlines())
        in_use = int(text(os.path.join(folder, use))) - int(counts[cache])
        rooms.append(max(0, int(limit_text) - in_use))
    return rooms
