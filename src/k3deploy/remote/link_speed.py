"""How many streams it takes to fill the link of an address: what one process of ours moves is far less than a NIC."""

import math
import os

from k3deploy.remote.facts.network import interfaces
from k3deploy.remote.reading import Unreadable, line, tool_output

# Measured: one Python process receives, hashes and writes 0.55 to 0.7 GB/s, 5 Gbit/s.
_GBIT_PER_STREAM = 5
_FEWEST = 2
_MOST = 16


def stream_count(address: str, root: str = "/") -> int:
    """Streams for the interface that holds `address`, never more than there are cores; 2 where nobody knows its speed.

    `root` is where /sys is looked for; anything but "/" is for tests.
    """
    try:
        links = interfaces(tool_output(["ip", "-j", "-d", "addr"]))
    except (Unreadable, ValueError, KeyError):
        return _FEWEST
    for link in links:
        if any(each["address"] == address for each in link["addresses"]):
            return streams(_gbit_per_s(root, link["name"]), len(os.sched_getaffinity(0)))
    return _FEWEST


def streams(gbit_per_s: float, cores: int) -> int:
    """0 Gbit/s stands for a link whose speed is not known."""
    return max(_FEWEST, min(math.ceil(gbit_per_s / _GBIT_PER_STREAM), _MOST, cores))


def _gbit_per_s(root: str, interface: str) -> float:
    """The kernel says Mbit/s, and -1 or nothing at all for links that have no speed."""
    try:
        return max(0, int(line(os.path.join(root, "sys/class/net", interface, "speed")))) / 1000
    except (Unreadable, ValueError):
        return 0.0
