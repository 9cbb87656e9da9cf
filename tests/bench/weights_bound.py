"""The shortest time in which every node can have every byte, from the rates of the links alone. Pure.

Bits are counted as a shaped cable counts them, headers apart: 1 Mbit/s carries at most 125,000 payload bytes a second.
"""

from collections.abc import Sequence

BYTES_PER_MBIT = 125_000


def plain_s(size_bytes: int, hub_mbit: Sequence[int]) -> float:
    """Every node fetches everything by itself: the slowest link decides."""
    return size_bytes / (min(hub_mbit) * BYTES_PER_MBIT)


def swarm_s(size_bytes: int, hub_mbit: Sequence[int], lan_mbit: int) -> float:
    """Every byte enters the cluster once, over all links together, and crosses the private network once for each
    other node. Uneven links change the first term alone: a fast node fetches more and passes more on."""
    nodes = len(hub_mbit)
    enter_s = size_bytes / (sum(hub_mbit) * BYTES_PER_MBIT)
    spread_s = size_bytes * (nodes - 1) / (nodes * lan_mbit * BYTES_PER_MBIT)
    return max(enter_s, spread_s)


def best_s(size_bytes: int, hub_mbit: Sequence[int], lan_mbit: int) -> float:
    """Bytes may enter more than once: all links together, and no node has more than its own two links."""
    enter_s = size_bytes / (sum(hub_mbit) * BYTES_PER_MBIT)
    return max(enter_s, size_bytes / ((min(hub_mbit) + lan_mbit) * BYTES_PER_MBIT))
