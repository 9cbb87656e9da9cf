"""What a node has found out about its peers: who gives wrong bytes, who is busy, who cannot be reached. No I/O."""

import random
from collections.abc import Iterable
from typing import Any

from k3deploy.remote.fetch_failure import ABSENT, BUSY

_BUSY_S = 0.2
_ABSENT_S = 1.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
# So often in vain, and a file counts as not to be had there: the node is out of reach, or has not what it says.
_VAIN = 3


class PeerRecord:
    """Files are named by their index in the manifest, the clock is an argument."""

    def __init__(self) -> None:
        self._banned: set[tuple[int, str]] = set()
        self._absent_until: dict[tuple[int, str], float] = {}
        self._silent_until: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._absences: dict[tuple[int, str], int] = {}

    def usable(self, index: int, holders: Iterable[str], now: float) -> list[str]:
        """Those of the holders that may be asked for this file now, in random order."""
        names = [
            name
            for name in holders
            if (index, name) not in self._banned
            and self._absent_until.get((index, name), now) <= now
            and self._silent_until.get(name, now) <= now
        ]
        random.shuffle(names)
        return names

    def is_cut_off(self, index: int, holders: Iterable[str]) -> bool:
        """Whether there are holders, and this node can have the file from none of them."""
        return all(
            (index, name) in self._banned
            or self._absences.get((index, name), 0) >= _VAIN
            or self._failures.get(name, 0) >= _VAIN
            for name in holders
        )

    def gave(self, name: str) -> None:
        """Bytes came from there."""
        self._failures.pop(name, None)

    def gave_wrong_bytes(self, index: int, name: str) -> None:
        """Never ask for this file there again; others may be right."""
        self._banned.add((index, name))

    def refused(self, index: int, name: str, failure: dict[str, Any], now: float) -> None:
        """`failure`: as a receiver says it."""
        if failure["kind"] == BUSY:
            self._silent_until[name] = now + _BUSY_S * random.uniform(0.5, 1.0)
        elif failure["kind"] == ABSENT:
            self._absent_until[index, name] = now + _ABSENT_S
            self._absences[index, name] = self._absences.get((index, name), 0) + 1
        else:
            count = self._failures[name] = self._failures.get(name, 0) + 1
            self._silent_until[name] = now + min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**count)
