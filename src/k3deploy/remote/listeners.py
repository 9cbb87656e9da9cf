"""Who listens on a TCP port of this machine: process, program, container. Needs root to see others' processes."""

import os
import re
from typing import Any

from k3deploy.remote.facts.gpus import container_of

_LISTEN = "0A"  # state of /proc/net/tcp, see tcp_states.h
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def listeners(ports: list[int], root: str = "/") -> list[dict[str, Any]]:
    """One entry per listening port of those asked about: {port, pid, program, container}; pid None when unknown."""
    found = _listening(set(ports), root)
    if not found:
        return []
    owners = _owners(set(found), root)
    return sorted(
        ({"port": port, **owners.get(inode, _NOBODY)} for inode, port in found.items()), key=lambda item: item["port"]
    )


_NOBODY: dict[str, Any] = {"pid": None, "program": None, "container": None}


def _listening(ports: set[int], root: str) -> dict[str, int]:
    """Inode -> port of the listening sockets."""
    found: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        try:
            with open(os.path.join(root, "proc/net", table), encoding="ascii") as file:
                rows = file.read().splitlines()[1:]
        except FileNotFoundError:  # IPv6 may be off
            continue
        for row in rows:
            cells = row.split()
            port = int(cells[1].rpartition(":")[2], 16)
            if cells[3] == _LISTEN and port in ports:
                found[cells[9]] = port
    return found


def _owners(inodes: set[str], root: str) -> dict[str, dict[str, Any]]:
    owners: dict[str, dict[str, Any]] = {}
    proc = os.path.join(root, "proc")
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        for inode in _sockets(os.path.join(proc, entry, "fd")) & inodes:
            pid = int(entry)
            owners.setdefault(inode, {"pid": pid, "program": _program(pid, proc), "container": container_of(pid, root)})
        if len(owners) == len(inodes):
            break
    return owners


def _sockets(folder: str) -> set[str]:
    found: set[str] = set()
    try:
        for name in os.listdir(folder):
            match = _SOCKET.fullmatch(os.readlink(os.path.join(folder, name)))
            if match:
                found.add(match.group(1))
    except OSError:  # it ended meanwhile, or is not ours to look into
        pass
    return found


def _program(pid: int, proc: str) -> str:
    """The program and its first arguments, short enough for a message."""
    try:
        with open(os.path.join(proc, str(pid), "cmdline"), "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return "?"
    # Arguments may hold anything, a password too: only the program's name and a module after -m are shown.
    shown = [os.path.basename(words[0]) or "?"]
    if len(words) > 2 and words[1] == "-m":
        shown += words[1:3]
    return " ".join(shown)
