"""The least time in which nodes can get a repository's files, whatever the program: what their links allow.

From counting bytes. Each node must take in what it lacks, through its link to the Hub, its link to the others and its
disk; what no node holds must cross the Hub's links once (swarm) or once for each node (hub). Links carry both ways at
once, and the two links of a node do not share one wire: where they do, no strategy reaches these figures.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Link(NamedTuple):
    """One node: the bytes it lacks, and bytes a second of its link to the Hub, to the other nodes, and of its disk.

    None where nobody has measured it: then it bounds nothing.
    """

    missing_bytes: int
    hub_bps: float
    lan_bps: float | None = None
    disk_bps: float | None = None


def hub_bound_s(links: Sequence[Link]) -> float:
    """Every node by itself: S / min(h) for nodes that lack the same."""
    return max(max(link.missing_bytes / link.hub_bps for link in links), _disk_bound_s(links))


def swarm_bound_s(unheld_bytes: int, links: Sequence[Link]) -> float:
    """Each byte crosses the Hub's links once: max(S / sum(h), S(N-1) / (N l), S / w) for nodes that lack everything.

    `unheld_bytes`: what no node has at the start.
    """
    given_bytes = sum(link.missing_bytes for link in links) - unheld_bytes
    lan_bps = [link.lan_bps for link in links if link.lan_bps is not None]
    is_lan_known = len(lan_bps) == len(links)
    between_nodes_s = given_bytes / sum(lan_bps) if given_bytes > 0 and is_lan_known else 0.0
    return max(auto_bound_s(unheld_bytes, links), between_nodes_s)


def auto_bound_s(unheld_bytes: int, links: Sequence[Link]) -> float:
    """A byte may cross the Hub's links again where that is sooner: max(S / sum(h), S / (h + l), S / w)."""
    from_hub_s = unheld_bytes / sum(link.hub_bps for link in links)
    into_node_s = [link.missing_bytes / (link.hub_bps + link.lan_bps) for link in links if link.lan_bps is not None]
    return max([from_hub_s, _disk_bound_s(links), *into_node_s])


def _disk_bound_s(links: Sequence[Link]) -> float:
    return max((link.missing_bytes / link.disk_bps for link in links if link.disk_bps is not None), default=0.0)
