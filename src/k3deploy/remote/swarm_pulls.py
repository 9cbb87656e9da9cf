"""Which file a receiver takes next, from whom, and what it means when it comes back without it. No I/O."""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from k3deploy.remote.fetch_failure import DISK_DENIED, DISK_FULL, WRONG
from k3deploy.remote.fetch_policy import Moving
from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.peer_record import PeerRecord
from k3deploy.remote.swarm_files import SwarmFiles

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


class SwarmPulls:
    """`is_auto`: the tracker lets nodes fetch again from the origin what comes sooner that way."""

    def __init__(self, files: SwarmFiles, queue: FetchQueue, *, is_auto: bool) -> None:
        self.holders: Mapping[int, list[str]] = {}
        self._files = files
        self._queue = queue
        self._is_auto = is_auto
        self._record = PeerRecord()
        self._mixed: set[int] = set()
        self._not_before: dict[int, float] = {}
        self._local_failures: dict[int, int] = {}

    def cut_off(self) -> list[int]:
        """Files that somebody holds, and that this node can have from none of them."""
        return sorted(index for index, names in self.holders.items() if self._record.is_cut_off(index, names))

    def next(self, moving: Moving, now: float) -> Choice | None:
        """Take the rarest file that somebody can give now, or else one to prove."""
        rarest: tuple[int, float, int, list[str]] | None = None
        for index in self._files.awaited & self.holders.keys():
            if self._not_before.get(index, now) <= now and not self._is_sooner_from_origin(index, moving):
                names = self.holders[index]
                usable = self._record.usable(index, names, now)
                rank = (len(names), random.random(), index, usable)
                if usable and (rarest is None or rank < rarest):
                    rarest = rank
        if rarest is not None:
            return self._pull(rarest[2], rarest[3])
        for index in self._files.unproved - self._files.proving:
            self._files.proving.add(index)
            return Choice(self._files.by_index[index], None, is_fresh=False)
        return None

    def ended(self, index: int, word: dict[str, Any], now: float) -> bool:
        """A receiver has let go of a file. Returns whether what lies here of it is of no use and has to make way.

        Raises Refusal when it is this node's disk that does not take it.
        """
        failure = word["failure"]
        was_proof, was_killed = index in self._files.proving, word.get("was_killed", False)
        asked = self._files.pulled.pop(index, [])
        self._files.proving.discard(index)
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
            self._files.unproved.discard(index)
        return is_of_no_use

    def _pull(self, index: int, usable: list[str]) -> Choice:
        # A holder that many of our receivers ask already comes last.
        load = [name for names in self._files.pulled.values() for name in names[:1]]
        names = sorted(usable, key=load.count)
        is_fresh = index in self._mixed
        self._files.pulled[index] = names[:1] if is_fresh else names
        return Choice(self._files.by_index[index], self._files.pulled[index], is_fresh)

    def _gave_wrong_bytes(self, index: int, gave: list[str]) -> None:
        if len(gave) == 1 and gave != [""]:
            self._record.gave_wrong_bytes(index, gave[0])
        else:
            self._mixed.add(index)  # next time whole from one holder, so that it is known who is wrong

    def _has_failed_here(self, index: int, failure: dict[str, Any], now: float) -> None:
        count = self._local_failures[index] = self._local_failures.get(index, 0) + 1
        if failure["kind"] in (DISK_FULL, DISK_DENIED) or count >= _MOST_LOCAL_FAILURES:
            raise self._queue.refusal(self._files.by_index[index].path, failure)
        self._not_before[index] = now + _LOCAL_PAUSE_S

    def _is_sooner_from_origin(self, index: int, moving: Moving) -> bool:
        """Whether all that is left would be here from the origin before this file was from a peer.

        Only where the tracker would grant it as well: the private link is then no more than four times as fast. Where
        it is that much slower it carries reports and nothing else: what it could bring is not worth their delay.
        """
        if not self._is_auto or not moving.lan_bps or moving.hub_bps < _AGAIN_PART * moving.lan_bps:
            return False
        if moving.lan_bps < _AGAIN_PART * moving.hub_bps:
            return True
        files = self._files
        left_bytes = files.left_bytes(files.wanted - files.pulled.keys() - files.unproved, moving.from_origin)
        return files.from_peer_s(index, moving) > left_bytes / moving.hub_bps
