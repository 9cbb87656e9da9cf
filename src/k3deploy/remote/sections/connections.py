"""Established TCP connections on one port, by the addresses at both ends: who really talks to whom. Reads only."""

import socket
import struct
import sys
from collections import Counter
from typing import Any

_ESTABLISHED = "01"  # state of /proc/net/tcp, see tcp_states.h


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: port. `connections`: [{local, remote, is_server, count}]; `is_server`: the port is on our side."""
    counted: Counter[tuple[str, str, bool]] = Counter()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{table}", encoding="ascii") as file:
                rows = file.read().splitlines()[1:]
        except FileNotFoundError:  # IPv6 may be off
            continue
        counted.update(established(rows, args["port"]))
    return {
        "connections": [
            {"local": local, "remote": remote, "is_server": is_server, "count": count}
            for (local, remote, is_server), count in sorted(counted.items())
        ]
    }


def established(rows: list[str], port: int) -> list[tuple[str, str, bool]]:
    """From the rows of /proc/net/tcp or tcp6."""
    found = []
    for row in rows:
        cells = row.split()
        if cells[3] != _ESTABLISHED:
            continue
        local, local_port = _end(cells[1])
        remote, remote_port = _end(cells[2])
        if port in (local_port, remote_port):
            found.append((local, remote, local_port == port))
    return found


def _end(cell: str) -> tuple[str, int]:
    """The kernel prints an address as 32-bit words in its own byte order: 0100007F:1F90 is 127.0.0.1:8080 on x86."""
    address, _, port = cell.partition(":")
    order = "<" if sys.byteorder == "little" else ">"
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = struct.pack(f"{order}{len(words)}I", *words)
    text = socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)
    return text.removeprefix("::ffff:"), int(port, 16)
