"""What a node of a swarm does next: which files it fetches from the origin for all, which it takes from peers. No I/O.

Large files are named by their index in the manifest, as between nodes. Each one lacked is in one of these places:
granted (ours to fetch from the origin), pulled (on its way from a peer), to be proved (here, and nobody has hashed it),
or waiting for somebody else to have it. Small files without a sha256 every node gets from the origin itself.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from k3deploy.remote.fetch_failure import DISK_DENIED, DISK_FULL, WRONG
from k3deploy.remote.fetch_policy import Moving
from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.origin_health import OriginHealth
from k3deploy.remote.peer_record import PeerRecord
from k3deploy.remote.tracker_answer import Answer

# A lease is given back after so many failures: the node next door may have more luck.
_GIVE_BACK_FAILURES = 3
# A file that was begun and stopped so often is let through: what is fetched in vain must stay little.
_MOST_STOPS = 2
# Failures of this node itself, such as a disk that does not read: tried again after a pause, a few times.
_MOST_LOCAL_FAILURES = 5
_LOCAL_PAUSE_S = 1.0
# As in the tracker's rule for `auto`.
_AGAIN_PART = 0.25


class Choice(NamedTuple):
    """A file for a receiver, and the nodes to try in this order; None: it is here, prove it."""

    file: Wanted
    holders: list[str] | None
    is_fresh: bool


class SwarmPlan:
    """`lacking`: paths of what has to come, or is here and `unproved`. The rest of `files` is here and proved.

    `is_auto`: the tracker lets nodes fetch again from the origin what comes sooner that way.
    """

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
        self._files = {index: file for index, file in enumerate(files) if file.is_sha256}
        self._indexes = {file.path: index for index, file in self._files.items()}
        self._queue = queue
        self._in_flight = in_flight
        self._is_auto = is_auto
        self._wanted = {index for index, file in self._files.items() if file.path in lacking}
        self._unproved = {index for index, file in self._files.items() if file.path in unproved}
        self._held = set(self._files) - self._wanted
        self._granted: set[int] = set()
        self._pulled: dict[int, list[str]] = {}
        self._proving: set[int] = set()
        self._holders: dict[int, list[str]] = {}
        self._record = PeerRecord()
        self._mixed: set[int] = set()
        self._failed: set[int] = set()
        self._failures_before: dict[int, int] = {}
        self._stops: Counter[int] = Counter()
        self._hopeless: set[int] = set()
        self._not_before: dict[int, float] = {}
        self._local_failures: dict[int, int] = {}
        self.is_alone = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way here: somebody else has to move first."""
        return not self._granted and not self._pulled and not self._proving

    def learn(self, answer: Answer, given_back: Iterable[int], moving: Moving) -> list[str]:
        """Take an answer in. Returns the files whose transfer from the origin is to stop."""
        if self.is_alone:
            self.is_alone = False
            self._granted = {index for index in self._granted if self._files[index].path in moving.from_origin}
        self._failed -= set(given_back)
        self._holders = {index: names for index, names in answer.holders.items() if index in self._wanted}
        for index in answer.leases:
            file = self._files.get(index)
            is_free = index in self._wanted and not self._is_coming(index) and index not in self._hopeless
            if file is not None and is_free and file.path not in moving.from_origin:
                self._granted.add(index)
                self._failures_before[index] = self._queue.failures(file.path)
                self._queue.offer([file])
            else:
                self._failed.add(index)
        stopped = [
            index
            for index in answer.revoked
            if index in self._granted and self._stops[index] < _MOST_STOPS and self._is_sooner_from_peer(index, moving)
        ]
        self._stops.update(stopped)
        self._granted.difference_update(stopped)
        return [self._files[index].path for index in stopped]

    def go_alone(self) -> None:
        """Nobody answers: everything from the origin."""
        self.is_alone = True
        mine = self._wanted - self._granted - self._pulled.keys() - self._unproved - self._hopeless
        self._granted |= mine
        self._queue.offer(self._files[index] for index in mine)

    def tidy_up(self, health: OriginHealth) -> None:
        """Give back what this node has no luck with, and let nothing wait for the origin that is not ours to fetch."""
        for index in list(self._granted):
            path = self._files[index].path
            failures = self._queue.failures(path) - self._failures_before.get(index, 0)
            has_no_luck = health.is_down or failures >= _GIVE_BACK_FAILURES
            if has_no_luck and not self.is_alone and self._queue.withdraw(path):
                self._give_back(index)
        for index in self._wanted - self._granted:
            self._queue.withdraw(self._files[index].path)

    def give_up(self, path: str) -> None:
        """The origin does not give it to us, however often we ask."""
        if path in self._indexes:
            self._hopeless.add(self._indexes[path])
            self._give_back(self._indexes[path])

    def report(self, moving: Moving, health: OriginHealth) -> dict[str, Any]:
        """The tracker's part of a report."""
        return {
            "held": sorted(self._held),
            "leases": {str(index): landed for index, landed in self.leases(moving).items()},
            "room": self._room(moving, health),
            "hub_bps": moving.hub_bps or None,
            "lan_bps": moving.lan_bps or None,
            "lan_backlog_bytes": self._backlog_bytes(moving),
            "hub_bytes": moving.hub_bytes,
            "failed": sorted(self._failed),
            "pulling": sorted(self._pulled),
            "cut_off": sorted(i for i, names in self._holders.items() if self._record.is_cut_off(i, names)),
        }

    def could_begin(self, moving: Moving, health: OriginHealth) -> bool:
        """Whether the tracker would grant one more lease now: those under way are far enough for that.

        The k-th of `in_flight` leases begins when the others are 1/in_flight landed, so that they land one by one.
        """
        landed = self._under_way(moving)
        is_spread = all(here * self._in_flight >= self._files[index].size_bytes for index, here in landed.items())
        return is_spread and self._room(moving, health) > 0

    def leases(self, moving: Moving) -> dict[int, int]:
        """Bytes here of each file that nobody else has to fetch; one that only has to be proved counts as whole."""
        landed = {index: moving.from_origin.get(self._files[index].path, 0) for index in self._granted}
        return {**landed, **{index: self._files[index].size_bytes for index in self._unproved}}

    def next_pull(self, moving: Moving, now: float) -> Choice | None:
        """Take the rarest file that somebody can give now, or else one to prove."""
        rarest: tuple[int, float, int, list[str]] | None = None
        for index, names in self._holders.items():
            may_come = index in self._wanted and not self._is_coming(index)
            if may_come and self._not_before.get(index, now) <= now and not self._is_sooner_from_origin(index, moving):
                usable = self._record.usable(index, names, now)
                rank = (len(names), random.random(), index, usable)
                if usable and (rarest is None or rank < rarest):
                    rarest = rank
        if rarest is not None:
            return self._pull(rarest[2], rarest[3])
        for index in self._unproved - self._proving:
            self._proving.add(index)
            return Choice(self._files[index], None, is_fresh=False)
        return None

    def pull_ended(self, path: str, word: dict[str, Any], now: float) -> bool:
        """A receiver has let go of a file. Returns whether what lies here of it is of no use and has to make way.

        Raises Refusal when it is this node's disk that does not take it.
        """
        index, failure = self._indexes[path], word["failure"]
        was_proof, was_killed = index in self._proving, word.get("was_killed", False)
        asked = self._pulled.pop(index, [])
        self._proving.discard(index)
        for name, refusal in word.get("refused", {}).items():
            self._record.refused(index, name, refusal, now)
        if failure["kind"] == WRONG:
            if not was_proof:
                self._gave_wrong_bytes(index, word.get("gave", []))
        elif was_killed and asked:
            self._record.refused(index, asked[0], failure, now)
        elif "gave" in word:
            for name in word["gave"]:
                self._record.gave(name)
        else:  # nobody else had a part in it
            self._has_failed_here(index, failure, now)
        is_of_no_use = was_proof and not was_killed
        if is_of_no_use:
            self._unproved.discard(index)
        return is_of_no_use

    def proved(self, file: Wanted) -> None:
        """It is here, and nobody has to bring it any more."""
        index = self._indexes.get(file.path)
        if index is not None:
            self._held.add(index)
            self._wanted.discard(index)
            self._granted.discard(index)
            self._unproved.discard(index)
            self._proving.discard(index)
            self._pulled.pop(index, None)

    def progress_mark(self) -> tuple[int, int]:
        """Changes whenever somebody has got a file."""
        return len(self._held), sum(len(names) for names in self._holders.values())

    def _gave_wrong_bytes(self, index: int, gave: list[str]) -> None:
        if len(gave) == 1 and gave != [""]:
            self._record.gave_wrong_bytes(index, gave[0])
        else:
            self._mixed.add(index)  # next time whole from one holder, so that it is known who is wrong

    def _has_failed_here(self, index: int, failure: dict[str, Any], now: float) -> None:
        count = self._local_failures[index] = self._local_failures.get(index, 0) + 1
        if failure["kind"] in (DISK_FULL, DISK_DENIED) or count >= _MOST_LOCAL_FAILURES:
            raise self._queue.refusal(self._files[index].path, failure)
        self._not_before[index] = now + _LOCAL_PAUSE_S

    def _under_way(self, moving: Moving) -> dict[int, int]:
        """Leases of which bytes are still to come, and those that are here."""
        return {index: here for index, here in self.leases(moving).items() if here < self._files[index].size_bytes}

    def _room(self, moving: Moving, health: OriginHealth) -> int:
        # A lease that nobody can begin yet would only keep others from it.
        if health.is_down or not moving.is_origin_ready:
            return 0
        return max(0, self._in_flight - len(self._under_way(moving)))

    def _pull(self, index: int, usable: list[str]) -> Choice:
        # A holder that many of our receivers ask already comes last.
        load = [name for names in self._pulled.values() for name in names[:1]]
        names = sorted(usable, key=load.count)
        is_fresh = index in self._mixed
        self._pulled[index] = names[:1] if is_fresh else names
        return Choice(self._files[index], self._pulled[index], is_fresh)

    def _is_coming(self, index: int) -> bool:
        return index in self._granted or index in self._pulled or index in self._unproved

    def _is_sooner_from_origin(self, index: int, moving: Moving) -> bool:
        """Whether all that is left would be here from the origin before this file was from a peer.

        Only where the tracker would grant it as well: the private link is then no more than four times as fast. Where
        it is that much slower it carries reports and nothing else: what it could bring is not worth their delay.
        """
        if not self._is_auto or not moving.lan_bps or moving.hub_bps < _AGAIN_PART * moving.lan_bps:
            return False
        if moving.lan_bps < _AGAIN_PART * moving.hub_bps:
            return True
        pulled_bytes = self._left_bytes(self._pulled, moving.from_peers)
        others_bytes = self._left_bytes(self._wanted - self._pulled.keys() - self._unproved, moving.from_origin)
        return (self._files[index].size_bytes + pulled_bytes) / moving.lan_bps > others_bytes / moving.hub_bps

    def _is_sooner_from_peer(self, index: int, moving: Moving) -> bool:
        """Whether a peer would bring the whole file before the origin is through with the rest of it."""
        if not moving.hub_bps or not moving.lan_bps:
            return True  # not known yet, and a peer is one switch away
        from_peer_s = (
            self._files[index].size_bytes + self._left_bytes(self._pulled, moving.from_peers)
        ) / moving.lan_bps
        at_once = max(1, len(self._under_way(moving)))
        return from_peer_s < self._left_bytes([index], moving.from_origin) * at_once / moving.hub_bps

    def _left_bytes(self, indexes: Iterable[int], here: Mapping[str, int]) -> int:
        return sum(max(0, file.size_bytes - here.get(file.path, 0)) for file in map(self._files.__getitem__, indexes))

    def _give_back(self, index: int) -> None:
        self._granted.discard(index)
        self._failed.add(index)

    def _backlog_bytes(self, moving: Moving) -> int:
        return self._left_bytes(self._wanted - self._granted - self._unproved, moving.from_peers)
