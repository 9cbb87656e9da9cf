"""What a node of a swarm fetches from the origin for all, as its tracker would have it, and what it reports. No I/O."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from k3deploy.remote.fetch_policy import Moving
from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.origin_health import OriginHealth
from k3deploy.remote.swarm_files import SwarmFiles
from k3deploy.remote.swarm_pulls import Choice, SwarmPulls
from k3deploy.remote.tracker_answer import Answer

# A lease is given back after so many failures: the node next door may have more luck.
_GIVE_BACK_FAILURES = 3
# A file that was begun and stopped so often is let through: what is fetched in vain must stay little.
_MOST_STOPS = 2


class SwarmPlan:
    """`lacking`, `unproved`: as for `SwarmFiles`; `in_flight`: files from the origin at once; `is_auto`: see pulls."""

    def __init__(
        self,
        files: list[Wanted],
        lacking: set[str],
        unproved: set[str],
        queue: FetchQueue,
        *,
        in_flight: int,
        is_auto: bool = False,
    ) -> None:
        self.is_alone = False
        self._files = SwarmFiles(files, lacking, unproved)
        self._pulls = SwarmPulls(self._files, queue, is_auto=is_auto)
        self._queue = queue
        self._in_flight = in_flight
        self._failed: set[int] = set()
        self._hopeless: set[int] = set()
        self._failures_before: dict[int, int] = {}
        self._stops: Counter[int] = Counter()

    @property
    def is_idle(self) -> bool:
        return self._files.is_idle

    def learn(self, answer: Answer, given_back: Iterable[int], moving: Moving) -> list[str]:
        """Take an answer in. Returns the files whose transfer from the origin is to stop."""
        files = self._files
        if self.is_alone:
            self.is_alone = False
            files.granted = {index for index in files.granted if files.by_index[index].path in moving.from_origin}
        self._failed -= set(given_back)
        self._pulls.holders = answer.holders
        for index in answer.leases:
            self._begin(index, moving)
        stopped = [
            index
            for index in answer.revoked
            if index in files.granted and self._stops[index] < _MOST_STOPS and files.is_sooner_from_peer(index, moving)
        ]
        self._stops.update(stopped)
        files.granted.difference_update(stopped)
        return [files.by_index[index].path for index in stopped]

    def go_alone(self) -> None:
        """Nobody answers: everything from the origin."""
        self.is_alone = True
        mine = self._files.awaited - self._hopeless
        self._files.granted |= mine
        self._queue.offer(self._files.by_index[index] for index in mine)

    def tidy_up(self, health: OriginHealth) -> None:
        """Give back what this node has no luck with, and let nothing wait for the origin that is not ours to fetch."""
        for index in list(self._files.granted):
            path = self._files.by_index[index].path
            failures = self._queue.failures(path) - self._failures_before.get(index, 0)
            has_no_luck = health.is_down or failures >= _GIVE_BACK_FAILURES
            if has_no_luck and not self.is_alone and self._queue.withdraw(path):
                self._give_back(index)
        for index in self._files.wanted - self._files.granted:
            self._queue.withdraw(self._files.by_index[index].path)

    def give_up(self, path: str) -> None:
        """The origin does not give it to us, however often we ask."""
        if path in self._files.indexes:
            self._hopeless.add(self._files.indexes[path])
            self._give_back(self._files.indexes[path])

    def report(self, moving: Moving, health: OriginHealth) -> dict[str, Any]:
        """The tracker's part of a report."""
        files = self._files
        return {
            "held": sorted(files.held),
            "leases": {str(index): landed for index, landed in files.leases(moving).items()},
            "room": self._room(moving, health),
            "hub_bps": moving.hub_bps or None,
            "lan_bps": moving.lan_bps or None,
            "lan_backlog_bytes": files.left_bytes(files.awaited | files.pulled.keys(), moving.from_peers),
            "hub_bytes": moving.hub_large_bytes,
            "failed": sorted(self._failed),
            "pulling": sorted(files.pulled),
            "cut_off": self._pulls.cut_off(),
        }

    def could_begin(self, moving: Moving, health: OriginHealth) -> bool:
        """Whether the tracker would grant one more lease now: those under way are far enough for that.

        The k-th of `in_flight` leases begins when the others are 1/in_flight landed, so that they land one by one.
        """
        landed = self._files.under_way(moving)
        sizes = {index: self._files.by_index[index].size_bytes for index in landed}
        is_spread = all(here * self._in_flight >= sizes[index] for index, here in landed.items())
        return is_spread and self._room(moving, health) > 0

    def leases(self, moving: Moving) -> dict[int, int]:
        return self._files.leases(moving)

    def next_pull(self, moving: Moving, now: float) -> Choice | None:
        return self._pulls.next(moving, now)

    def pull_ended(self, path: str, word: dict[str, Any], now: float) -> bool:
        """See `SwarmPulls.ended`."""
        return self._pulls.ended(self._files.indexes[path], word, now)

    def proved(self, file: Wanted) -> None:
        """It is here, and nobody has to bring it any more."""
        if file.path in self._files.indexes:
            self._files.proved(self._files.indexes[file.path])

    def progress_mark(self) -> tuple[int, int]:
        """Changes whenever somebody has got a file."""
        return len(self._files.held), sum(len(names) for names in self._pulls.holders.values())

    def _begin(self, index: int, moving: Moving) -> None:
        """A lease was granted; give it back where it is of no use."""
        file = self._files.by_index.get(index)
        is_free = index in self._files.awaited and index not in self._hopeless
        if file is None or not is_free or file.path in moving.from_origin:
            self._failed.add(index)
            return
        self._files.granted.add(index)
        self._failures_before[index] = self._queue.failures(file.path)
        self._queue.offer([file])

    def _give_back(self, index: int) -> None:
        self._files.granted.discard(index)
        self._failed.add(index)

    def _room(self, moving: Moving, health: OriginHealth) -> int:
        # A lease that nobody can begin yet would only keep others from it.
        if health.is_down or not moving.is_origin_ready:
            return 0
        return max(0, self._in_flight - len(self._files.under_way(moving)))
