"""Which file a node should begin to fetch from the origin now, if any: the rules, in the order in which they count.

1. One that nobody has or fetches, unless others would be through with all of those sooner without this node.
2. One that peers hold and this node cannot get from them, unless another node fetches it, which may be better placed.
3. Strategy auto: one that peers hold, if it would be here before the peers were through with what is lacking.
4. One that another node fetches, if this one is idle and would have it in less than half the time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from k3deploy.remote.lease_plan import Fetcher, horizon_s
from k3deploy.remote.lease_world import Node
from k3deploy.remote.share_report import Report

_DOUBLE_PART = 0.5
# Were the link to the Hub a smaller part of the link to the peers, fetching again would save less than a fifth of the
# time, and load the Hub for it.
_AGAIN_PART = 0.25


class Look(NamedTuple):
    """The world at one moment, for one node. `files`: all, biggest first; `alive`: the nodes heard of lately, this one
    among them; `holders`: who else has what this one lacks; `order`: the run's nodes.
    """

    name: str
    report: Report
    files: Sequence[int]
    sizes: Mapping[int, int]
    order: Sequence[str]
    alive: Mapping[str, Node]
    holders: Mapping[int, Sequence[str]]
    now: float
    stall_s: float

    @property
    def node(self) -> Node:
        return self.alive[self.name]


def next_file(look: Look) -> int | None:
    """By its index; None where the node has nothing to begin now."""
    node = look.node
    wanted = [
        index
        for index in look.files
        if index not in node.held and index not in node.leases and not node.is_resting(index, look.now)
    ]
    unheld = [index for index in wanted if index not in look.holders]
    held = [index for index in wanted if index in look.holders]
    return next((index for index in _choices(look, unheld, held) if index is not None), None)


def _choices(look: Look, unheld: list[int], held: list[int]) -> Iterator[int | None]:
    leased = {
        index
        for node in look.alive.values()
        for index, lease in node.leases.items()
        if not node.is_stalled(lease, look.now, look.stall_s)
    }
    free = [index for index in unheld if index not in leased]
    if free:
        yield _free(look, free)
    yield next((index for index in held if index in look.report.cut_off and index not in leased), None)
    if free:
        return  # they come first: whoever is not needed for them now may be in a moment
    if look.report.strategy == "auto":
        yield _again(look, held)
    yield _double(look, unheld)


def _free(look: Look, free: list[int]) -> int | None:
    known_bps = [node.hub_bps for node in look.alive.values() if node.hub_bps is not None]
    usual_bps = sum(known_bps) / len(known_bps) if known_bps else 1.0
    fetchers = {
        name: Fetcher(node.backlog_bytes(look.now), node.hub_bps or usual_bps)
        for name, node in look.alive.items()
        if name == look.name or node.is_fetching(look.now)
    }
    me = fetchers.pop(look.name)
    within_s = horizon_s([look.sizes[index] for index in free], me, fetchers.values())
    if within_s is None:
        return None
    return next((index for index in _in_turn(look, free) if me.finish_s(look.sizes[index]) <= within_s), None)


def _in_turn(look: Look, free: list[int]) -> list[int]:
    """A node's own part of the files first, then the far end of the others' parts, the longest first.

    So nodes that ask different trackers for a while, or one that has just begun, still get different files.
    """
    waiting, count = set(free), max(1, len(look.order))
    parts = [[index for index in look.files[start::count] if index in waiting] for start in range(count)]
    own = parts.pop(look.order.index(look.name)) if look.name in look.order else []
    return own + [index for part in sorted(parts, key=len, reverse=True) for index in reversed(part)]


def _again(look: Look, held: list[int]) -> int | None:
    """The one that the fewest peers hold, and that is not on its way from one."""
    node = look.node
    lan_left_s = node.lan_left_s(look.now)
    if lan_left_s < float("inf"):  # else nothing really is on its way
        held = [index for index in held if index not in look.report.pulling]
    if not held or node.hub_bps is None or node.hub_bps < _AGAIN_PART * (look.report.lan_bps or 0.0):
        return None
    index = min(held, key=lambda each: len(look.holders[each]))
    return (
        index if Fetcher(node.backlog_bytes(look.now), node.hub_bps).finish_s(look.sizes[index]) < lan_left_s else None
    )


def _double(look: Look, unheld: list[int]) -> int | None:
    """The one that will be here last as it is, and that nobody has doubled yet."""
    node = look.node
    if node.transfers or node.hub_bps is None:
        return None
    left_s = {}
    for index in unheld:
        fetching = [each for each in look.alive.values() if index in each.leases]
        if len(fetching) == 1:
            left_s[index] = fetching[0].lease_left_s(fetching[0].leases[index], look.now)
    if not left_s:
        return None
    slowest = max(left_s, key=left_s.__getitem__)
    return slowest if look.sizes[slowest] / node.hub_bps < _DOUBLE_PART * left_s[slowest] else None
