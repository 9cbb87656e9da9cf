"""A swarm in virtual time: nodes with links of given rates, the real lease queue as their tracker, no socket, no clock.

A node's link to the Hub is shared evenly by what it fetches; a transfer between nodes goes as fast as the busier end
allows. Nodes behave as the contract of reports says; what they pick from peers is drawn from a seeded generator.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from k3deploy.remote.lease_queue import LeaseQueue
from k3deploy.remote.rate_meter import RateMeter
from k3deploy.remote.share_report import parse_report

STEP_S = 0.02
REPORT_S = 0.5
STALE_S = 3.0
SILENT_S = 3.0


@dataclass
class Pull:
    index: int
    holder: str
    landed: float = 0.0


@dataclass
class SimNode:
    """Rates in bytes a second; `in_flight`: fetches at a time; `streams`: transfers it takes, and gives."""

    name: str
    hub_bps: float
    lan_bps: float
    in_flight: int = 2
    streams: int = 2
    strategy: str = "swarm"
    held: set[int] = field(default_factory=set)
    leases: dict[int, float] = field(default_factory=dict)
    pulls: list[Pull] = field(default_factory=list)
    holders: Mapping[int, list[str]] = field(default_factory=dict)
    hub: RateMeter = field(default_factory=RateMeter)
    lan: RateMeter = field(default_factory=RateMeter)
    hub_bytes: float = 0.0
    lan_bytes: float = 0.0
    is_dead: bool = False
    report_at: float = 0.0
    done_at: float | None = None
    tracker: str | None = None


class Double(NamedTuple):
    """A file that was granted while another living node fetched it: what it takes this one, and what it would have."""

    file: int
    node: str
    had_leases: int
    own_s: float
    left_s: float


class Sim:
    """`sizes`: bytes of each file; `block_bytes`: what the client writes at a time.

    `run` returns when every living node has every file.
    """

    def __init__(self, sizes: Sequence[int], nodes: Sequence[SimNode], *, seed: int = 1, block_bytes: int = 1) -> None:
        self.sizes = dict(enumerate(sizes))
        self.nodes = {node.name: node for node in nodes}
        self.now = 0.0
        self._block_bytes = block_bytes
        self.fetched: dict[int, list[str]] = {index: [] for index in self.sizes}
        self.doubles: list[Double] = []
        self.first_landed_at: dict[int, float] = {}
        self.cut: set[tuple[str, str]] = set()
        self._events: list[tuple[float, Callable[[], None]]] = []
        self._random = random.Random(seed)  # noqa: S311 - repeatable draws, no secrets
        self._queues: dict[str, LeaseQueue] = {}
        self._used_at: dict[str, float] = {}
        self._polled_at: dict[str, float] = {}
        for number, node in enumerate(nodes):
            node.report_at = number * REPORT_S / len(nodes)

    def at(self, when: float, do: Callable[[], None]) -> None:
        self._events.append((when, do))

    def kill(self, name: str) -> None:
        self.nodes[name].is_dead = True
        self._queues.pop(name, None)

    def revive(self, name: str) -> None:
        """As after a reboot: finished files are there, fetches begin anew."""
        node = self.nodes[name]
        node.is_dead, node.leases, node.pulls, node.report_at = False, {}, [], self.now

    @property
    def hub_bytes(self) -> float:
        return sum(node.hub_bytes for node in self.nodes.values())

    @property
    def living(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if not node.is_dead]

    def run(self, limit_s: float = 10_000.0) -> float:
        while not all(len(node.held) == len(self.sizes) for node in self.living):
            assert self.now < limit_s, f"not done: {[(n.name, len(n.held), n.leases) for n in self.living]}"
            for event in [event for event in self._events if event[0] <= self.now]:
                self._events.remove(event)
                event[1]()
            self._step()
        return max(node.done_at or 0.0 for node in self.living)

    def _step(self) -> None:
        for node in self.living:
            if self.now >= node.report_at:
                self._report(node)
        self._move_from_hub()
        self._move_between_nodes()
        self.now += STEP_S

    def _move_from_hub(self) -> None:
        for node in self.living:
            budget = node.hub_bps * STEP_S
            moved = 0.0
            while node.leases and budget > 1e-6:
                part = min(budget / len(node.leases), min(self.sizes[i] - done for i, done in node.leases.items()))
                for index in list(node.leases):
                    node.leases[index] += part
                    moved += part
                    budget -= part
                    if node.leases[index] >= self.sizes[index] - 1e-6:
                        del node.leases[index]
                        self.fetched[index].append(node.name)
                        self._landed(node, index)
            node.hub_bytes += moved
            shown_bytes = node.hub_bytes - sum(landed - self._shown(i, landed) for i, landed in node.leases.items())
            node.hub.sample(self.now, int(shown_bytes), is_busy=bool(node.leases))

    def _move_between_nodes(self) -> None:
        for node in self.living:
            self._start_pulls(node)
        out: dict[str, int] = {}
        for node in self.living:
            for pull in node.pulls:
                out[pull.holder] = out.get(pull.holder, 0) + 1
        for node in self.living:
            moved = 0.0
            count = len(node.pulls)
            for pull in list(node.pulls):
                holder = self.nodes[pull.holder]
                if holder.is_dead:
                    node.pulls.remove(pull)
                    continue
                part = min(node.lan_bps / count, holder.lan_bps / out[pull.holder]) * STEP_S
                part = min(part, self.sizes[pull.index] - pull.landed)
                pull.landed += part
                moved += part
                if pull.landed >= self.sizes[pull.index] - 1e-6:
                    node.pulls.remove(pull)
                    self._landed(node, pull.index)
            node.lan_bytes += moved
            node.lan.sample(self.now, int(node.lan_bytes), is_busy=bool(count))

    def _start_pulls(self, node: SimNode) -> None:
        taken = {pull.index for pull in node.pulls} | node.leases.keys() | node.held
        wanted = [index for index in node.holders if index not in taken]
        self._random.shuffle(wanted)
        for index in wanted:
            if len(node.pulls) >= node.streams:
                return
            free = [name for name in node.holders[index] if self._has_slot(node, name, index)]
            if free:
                node.pulls.append(Pull(index, self._random.choice(free)))

    def _has_slot(self, node: SimNode, name: str, index: int) -> bool:
        holder = self.nodes[name]
        given = sum(1 for other in self.living for pull in other.pulls if pull.holder == name)
        return self._is_open(node, name) and index in holder.held and given < holder.streams

    def _is_open(self, node: SimNode, name: str) -> bool:
        return not self.nodes[name].is_dead and (node.name, name) not in self.cut

    def _landed(self, node: SimNode, index: int) -> None:
        node.held.add(index)
        node.pulls = [pull for pull in node.pulls if pull.index != index]
        node.report_at = self.now
        self.first_landed_at.setdefault(index, self.now)
        if len(node.held) == len(self.sizes):
            node.done_at = self.now + STEP_S

    def _report(self, node: SimNode) -> None:
        node.report_at = self.now + REPORT_S
        answer = self._queue_for(node).answer(parse_report(self._words(node), self.sizes), self.now)
        for index in answer["revoked"]:
            node.leases.pop(index, None)
        for index in answer["leases"]:
            self._note_double(node, index)
            assert index not in node.leases
            assert index not in node.held
            node.pulls = [pull for pull in node.pulls if pull.index != index]
            node.leases[index] = 0.0
        node.holders = {int(index): names for index, names in answer["holders"].items()}

    def _shown(self, index: int, landed: float) -> int:
        """What can be seen of a transfer: the client writes whole blocks."""
        is_whole = landed >= self.sizes[index] - 1e-6
        return int(landed) if is_whole else int(landed // self._block_bytes * self._block_bytes)

    def _note_double(self, node: SimNode, index: int) -> None:
        for other in self.living:
            if other is not node and index in other.leases:
                left = self.sizes[index] - other.leases[index]
                before_it = sum(min(left, self.sizes[i] - landed) for i, landed in other.leases.items())
                own_s, left_s = self.sizes[index] / node.hub_bps, before_it / max(other.hub_bps, 1e-9)
                self.doubles.append(Double(index, node.name, len(node.leases), own_s, left_s))

    def _words(self, node: SimNode) -> dict[str, Any]:
        pulling = {pull.index: pull.landed for pull in node.pulls}
        lacking = self.sizes.keys() - node.held - node.leases.keys()
        return {
            "node": node.name,
            "strategy": node.strategy,
            "held": sorted(node.held),
            "leases": {str(index): self._shown(index, landed) for index, landed in node.leases.items()},
            "room": node.in_flight - len(node.leases),
            "hub_bps": node.hub.bps,
            "lan_bps": node.lan.bps,
            "hub_bytes": node.hub.moved_bytes,
            "lan_backlog_bytes": int(sum(self.sizes[i] - pulling.get(i, 0.0) for i in lacking)),
            "pulling": sorted(pulling),
            "cut_off": [i for i, names in node.holders.items() if not any(self._is_open(node, name) for name in names)],
        }

    def _queue_for(self, node: SimNode) -> LeaseQueue:
        """The tracker that this node finds: the first one in the run's order that lives, or the one it is told to."""
        name = node.tracker or next(name for name in self.nodes if self._is_open(node, name))
        queue = self._queues.setdefault(name, LeaseQueue(self.sizes))
        queue.order = list(self.nodes)
        if self.now - self._used_at.get(name, float("-inf")) > STALE_S:
            self._learn(queue, [other for other in self.living if other is not node])
        if self.now - self._polled_at.get(name, 0.0) > SILENT_S:
            self._polled_at[name] = self.now
            silent = queue.silent(self.now, SILENT_S)
            self._learn(queue, [other for other in self.living if other.name in silent and other is not node])
        self._used_at[name] = self.now
        return queue

    def _learn(self, queue: LeaseQueue, nodes: Sequence[SimNode]) -> None:
        for node in nodes:
            landed = {index: self._shown(index, done) for index, done in node.leases.items()}
            queue.learn(node.name, sorted(node.held), landed, self.now)


def equal(count: int, hub_bps: float, lan_bps: float, **more: Any) -> list[SimNode]:
    return [SimNode(f"gpu-{number:02}", hub_bps, lan_bps, **more) for number in range(1, count + 1)]
