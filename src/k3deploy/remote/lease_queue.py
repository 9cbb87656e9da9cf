"""The tracker's mind: which node fetches which file from the origin, and who can give what. No I/O, no clock.

Files are granted so that the last one lands as soon as it can, each one once. What is known lies in `lease_world`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from k3deploy.remote.fetch_bound import Link, auto_bound_s, hub_bound_s, swarm_bound_s
from k3deploy.remote.lease_plan import Worker, horizon_s
from k3deploy.remote.lease_world import Lease, Node
from k3deploy.remote.share_report import Report

DEAD_S = 10.0
STALL_S = 60.0
# A node of unknown speed gets at most this part of an even share: were it four times slower, it would still be in time.
_UNKNOWN_PART = 0.25
# A lease is doubled only for a node that needs less than this part of the time which the first one still needs.
_DOUBLE_PART = 0.5


class LeaseQueue:
    """`sizes`: bytes of each file that goes through the swarm, by its index in the manifest.

    `order`: the run's nodes; whoever has the queue keeps it up to date.
    """

    def __init__(self, sizes: Mapping[int, int], *, dead_s: float = DEAD_S, stall_s: float = STALL_S) -> None:
        self._sizes = dict(sizes)
        self._by_size = sorted(self._sizes, key=lambda index: (-self._sizes[index], index))
        self.order: Sequence[str] = ()
        self._dead_s = dead_s
        self._stall_s = stall_s
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
        return [
            name for name in self.order if name not in self._nodes or now - self._nodes[name].heard_at > longer_than_s
        ]

    def is_complete(self) -> bool:
        """Whether every node of the run has every file, as far as was told."""
        return bool(self.order) and all(self._is_complete(name) for name in self.order)

    def answer(self, report: Report, now: float) -> dict[str, Any]:
        """Take a report in, and say what that node should do. Its next report must name what it was granted here."""
        name = report.node
        node = self._nodes.setdefault(name, Node(now))
        if node.report is None:
            node.lacked_bytes = sum(self._sizes[index] for index in self._sizes.keys() - report.held)
            self._held_at_first |= report.held
        node.hear(report.held, report.leases, self._sizes, now)
        alive = self._alive(now)
        lacking = self._sizes.keys() - node.held
        holders = self._holders(name, lacking, alive)
        node.take(report, now, can_pull=bool(holders.keys() - node.leases.keys()))
        granted = self._grants(name, holders, alive, now)
        is_held = not self._sizes.keys() - node.held - holders.keys()
        return {
            "leases": granted,
            "holders": {str(index): names for index, names in holders.items()},
            "revoked": [
                index for index in report.leases if index in holders and self._is_sooner_from_peers(node, index, now)
            ],
            "is_all_held": is_held,
            "rates": self._rates(alive),
            "told": {
                "hub_bytes": sum(each.report.hub_bytes for each in self._nodes.values() if each.report),
                "nodes_complete": sum(1 for each in self.order if self._is_complete(each)),
            },
        }

    def _grants(self, name: str, holders: Mapping[int, list[str]], alive: Mapping[str, Node], now: float) -> list[int]:
        node = alive[name]
        assert node.report is not None
        granted: list[int] = []
        while len(granted) < node.report.room:
            index = self._next(name, holders, alive, now)
            if index is None:
                break
            node.leases[index] = Lease(self._sizes[index], now, now)
            granted.append(index)
        return granted

    def _next(self, name: str, holders: Mapping[int, list[str]], alive: Mapping[str, Node], now: float) -> int | None:
        node = alive[name]
        assert node.report is not None
        mine = [
            index
            for index in self._by_size
            if index not in node.held and index not in node.leases and not node.is_resting(index, now)
        ]
        for index in mine:
            if index in node.report.cut_off and index in holders:
                return index
        leased = {
            index
            for each in alive.values()
            for index, lease in each.leases.items()
            if lease.is_moving(now, self._stall_s)
        }
        free = [index for index in mine if index not in holders and index not in leased]
        if free:
            return self._from_free(name, free, alive)
        if node.report.strategy == "auto":
            again = [index for index in mine if index in holders and index not in node.report.pulling]
            worth = self._worth_fetching_again(node, again, holders, now)
            if worth is not None:
                return worth
        return self._worth_doubling(name, [index for index in mine if index not in holders], alive, now)

    def _from_free(self, name: str, free: list[int], alive: Mapping[str, Node]) -> int | None:
        node = alive[name]
        if node.hub_bps is None and len(node.leases) >= max(1, _UNKNOWN_PART * len(free) / len(alive)):
            return None
        known = [each.hub_bps for each in alive.values() if each.hub_bps is not None]
        usual_bps = sum(known) / len(known) if known else 1.0
        workers = {
            other: Worker(each.backlog_bytes, each.hub_bps or usual_bps)
            for other, each in alive.items()
            if other == name or each.leases or (each.report and each.report.room)
        }
        me = workers.pop(name)
        within_s = horizon_s([self._sizes[index] for index in free], me, workers.values())
        if within_s is None:
            return None
        return next((index for index in self._in_turn(name, free) if me.finish_s(self._sizes[index]) <= within_s), None)

    def _in_turn(self, name: str, free: list[int]) -> list[int]:
        """A node's own part of the files first, then the far end of the others' parts, the longest first.

        So nodes that for a while ask different trackers, or one that has just begun, still get different files.
        """
        count = max(1, len(self.order))
        waiting = set(free)
        parts = [[index for index in self._by_size[start::count] if index in waiting] for start in range(count)]
        own = parts.pop(self.order.index(name)) if name in self.order else []
        others = sorted(parts, key=len, reverse=True)
        return own + [index for part in others for index in reversed(part)]

    def _worth_fetching_again(
        self, node: Node, again: list[int], holders: Mapping[int, list[str]], now: float
    ) -> int | None:
        """The rarest file that peers hold, when it would be here before the peers were through with what is lacking."""
        if not again or node.hub_bps is None:
            return None
        index = min(again, key=lambda each: len(holders[each]))
        from_hub_s = (node.backlog_bytes + self._sizes[index]) / node.hub_bps
        return index if from_hub_s < node.lan_left_s(now) else None

    def _worth_doubling(self, name: str, wanted: list[int], alive: Mapping[str, Node], now: float) -> int | None:
        """The lease of another node that will be through last, when this idle one would be much sooner with it."""
        node = alive[name]
        if node.leases or node.hub_bps is None:
            return None
        left_s: dict[int, float] = {}
        for index in wanted:
            leases = [(each, each.leases[index]) for each in alive.values() if index in each.leases]
            if len(leases) == 1:
                left_s[index] = leases[0][0].lease_left_s(leases[0][1], now)
        if not left_s:
            return None
        slowest = max(left_s, key=left_s.__getitem__)
        return slowest if self._sizes[slowest] / node.hub_bps < _DOUBLE_PART * left_s[slowest] else None

    def _is_sooner_from_peers(self, node: Node, index: int, now: float) -> bool:
        assert node.report is not None
        if index in node.report.cut_off:
            return False
        return node.report.strategy == "swarm" or node.lan_left_s(now) < node.lease_left_s(node.leases[index], now)

    def _holders(self, name: str, lacking: Iterable[int], alive: Mapping[str, Node]) -> dict[int, list[str]]:
        others = [(other, node.held) for other, node in alive.items() if other != name]
        found = {index: [other for other, held in others if index in held] for index in lacking}
        return {index: names for index, names in found.items() if names}

    def _alive(self, now: float) -> dict[str, Node]:
        return {name: node for name, node in self._nodes.items() if now - node.heard_at <= self._dead_s}

    def _is_complete(self, name: str) -> bool:
        return name in self._nodes and not self._sizes.keys() - self._nodes[name].held

    def _rates(self, alive: Mapping[str, Node]) -> dict[str, Any]:
        """What the links allow for what was lacking at first, as soon as every node's link to the Hub is known."""
        links = [
            Link(node.lacked_bytes, node.hub_bps, node.report.lan_bps, node.report.disk_bps)
            for node in alive.values()
            if node.report and node.hub_bps
        ]
        rates: dict[str, Any] = {"hub_bps": sum(link.hub_bps for link in links), "nodes": len(alive)}
        if not links or len(links) < sum(1 for node in alive.values() if node.report):
            return {**rates, "bound_s": None, "pick": None}
        unheld_bytes = sum(self._sizes[index] for index in self._sizes.keys() - self._held_at_first)
        hub_s, swarm_s = hub_bound_s(links), swarm_bound_s(unheld_bytes, links)
        bound_s = {"hub": hub_s, "swarm": swarm_s, "auto": auto_bound_s(unheld_bytes, links)}
        return {**rates, "bound_s": bound_s, "pick": "swarm" if swarm_s < hub_s else "hub"}
