"""The tracker's mind: who fetches which file from the origin, who holds what, how fast it could go. No I/O, no clock.

Files are granted so that the last one lands as soon as it can, and each one once (`lease_choice`); what is known of
the nodes is only what they tell (`lease_world`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from k3deploy.remote.fetch_bound import Link, auto_bound_s, hub_bound_s, swarm_bound_s
from k3deploy.remote.lease_choice import Look, next_file
from k3deploy.remote.lease_world import Lease, Node
from k3deploy.remote.share_report import Report

# A node that was not heard of for so long is gone, and so are its leases; one whose bytes stand still loses them later.
DEAD_S = 10.0
STALL_S = 60.0


class LeaseQueue:
    """`sizes`: bytes of each file that goes through the swarm, by its index in the manifest.

    `order`: the run's nodes; whoever has the queue keeps it up to date.
    """

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.order: Sequence[str] = ()
        self._sizes = dict(sizes)
        self._files = sorted(self._sizes, key=lambda index: (-self._sizes[index], index))
        self._nodes: dict[str, Node] = {}
        self._held_at_first: set[int] = set()

    def learn(self, name: str, held: Iterable[int], landed: Mapping[int, int], now: float) -> None:
        """What a node's share says of it, when the node itself does not report here."""
        node = self._nodes.setdefault(name, Node(now))
        node.hear(held, landed, self._sizes, now)
        if node.report is None:
            self._held_at_first |= node.held

    def silent(self, now: float, longer_than_s: float) -> list[str]:
        """Nodes of the run that were not heard of for so long, or never."""
        heard_at = {name: node.heard_at for name, node in self._nodes.items()}
        return [name for name in self.order if now - heard_at.get(name, float("-inf")) > longer_than_s]

    def is_complete(self) -> bool:
        """Whether every node of the run has every file, as far as was told."""
        return bool(self.order) and all(
            name in self._nodes and self._nodes[name].held >= self._sizes.keys() for name in self.order
        )

    def answer(self, report: Report, now: float) -> dict[str, Any]:
        """Take a report in, and say what that node should do. Its next report must name what it is granted here."""
        node = self._nodes.setdefault(report.node, Node(now))
        if node.report is None:
            node.lacked_bytes = self._sum_bytes(self._sizes.keys() - report.held)
            self._held_at_first |= report.held
        node.take(report, now)
        node.hear(report.held, report.leases, self._sizes, now)
        alive = {name: each for name, each in self._nodes.items() if now - each.heard_at <= DEAD_S}
        holders = self._holders(report.node, alive)
        node.watch_peers(now, can_pull=bool(holders))
        look = Look(report.node, report, self._files, self._sizes, self.order, alive, holders, now, STALL_S)
        return {
            "leases": self._grants(look),
            "holders": {str(index): names for index, names in holders.items()},
            "revoked": [index for index in report.leases if index in holders and _is_sooner_from_peers(look, index)],
            "bounds_s": self._bounds_s(alive),
            "hub_bytes": sum(each.hub_bytes for each in self._nodes.values()),
        }

    def _grants(self, look: Look) -> list[int]:
        node = look.node
        granted: list[int] = []
        at_once = node.transfers + look.report.room
        if not node.held and not look.holders:
            # The links between nodes stand idle until the first file is anywhere: two that share a link are both late.
            at_once = min(at_once, 1)
        while node.transfers < at_once and node.is_spread(at_once, look.now):
            index = next_file(look)
            if index is None:
                break
            node.leases[index] = Lease(self._sizes[index], look.now)
            granted.append(index)
        return granted

    def _holders(self, name: str, alive: Mapping[str, Node]) -> dict[int, list[str]]:
        """Who else has what this node lacks."""
        others = [(other, node.held) for other, node in alive.items() if other != name]
        lacking = self._sizes.keys() - alive[name].held
        found = {index: [other for other, held in others if index in held] for index in lacking}
        return {index: names for index, names in found.items() if names}

    def _bounds_s(self, alive: Mapping[str, Node]) -> dict[str, float] | None:
        """What the links allow for all that was lacking at first, once every node's link to the Hub is known.

        By strategy; "hub" is every node by itself.
        """
        reporting = [(node, node.report) for node in alive.values() if node.report is not None]
        links = [
            Link(node.lacked_bytes, node.hub_bps, report.lan_bps, report.disk_bps)
            for node, report in reporting
            if node.hub_bps is not None
        ]
        if not links or len(links) < len(reporting):
            return None
        unheld_bytes = self._sum_bytes(self._sizes.keys() - self._held_at_first)
        return {
            "hub": hub_bound_s(links),
            "swarm": swarm_bound_s(unheld_bytes, links),
            "auto": auto_bound_s(unheld_bytes, links),
        }

    def _sum_bytes(self, files: Iterable[int]) -> int:
        return sum(self._sizes[index] for index in files)


def _is_sooner_from_peers(look: Look, index: int) -> bool:
    """Whether a node should leave to its peers what it fetches and they have."""
    if index in look.report.cut_off:
        return False
    left_s = look.node.lease_left_s(look.node.leases[index], look.now)
    # What it fetches by itself is not in its backlog: it would come on top.
    return look.report.strategy == "swarm" or look.node.lan_left_s(look.now, look.sizes[index]) < left_s
