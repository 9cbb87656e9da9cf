"""Which file comes next from the origin, and what a failure means: another try, another way, the end. No I/O."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from k3deploy.remote.fetch_failure import ABSENT, DISK_DENIED, DISK_FULL, NO_ACCESS, RETRY, WRONG
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.protocol import Refusal

# Smaller files share one process with a few threads: what they cost is requests, not bytes.
SMALL_BYTES = 64 << 20
_MOST_FAILURES = 8
# Wrong bytes of the right length: once is the transport, three times is the node's memory or disk, or the origin.
_MOST_WRONG = 3
_MOST_STALLS = 3
_FINAL = (NO_ACCESS, ABSENT, DISK_FULL, DISK_DENIED)
# The second stall of a file takes the other road: Xet hangs where plain HTTP, which allows files up to 50 GB, goes on.
_STALLS_WITH_XET = 2
_LONGEST_WAIT_S = 30.0


_AGAIN = "then run the same command again"
_HINTS = {
    DISK_FULL: f"free space on the disk of the Hugging Face cache, {_AGAIN}",
    DISK_DENIED: f"give the folder of the Hugging Face cache to the login user, {_AGAIN}",
    WRONG: "suspect the node's memory or disk (`dmesg`), or the mirror if there is one; every other file is kept",
}
HUB_HINTS = {
    NO_ACCESS: "accept the model's terms on its page, or set HF_TOKEN to a token that may read it (`hf auth whoami`)",
    ABSENT: "check model.repo and model.revision in the profile: the Hub has no such file at that commit",
    RETRY: f"check that the node reaches the Hub, {_AGAIN}: finished files are kept",
}
STORE_HINTS = {
    NO_ACCESS: "give the store's credentials the right to read, and run the same command again: its URLs expire",
    ABSENT: "put the file where weights.mirror in the profile says, or correct it",
    RETRY: f"check that the node reaches the store of weights.mirror, {_AGAIN}: finished files are kept",
}


@dataclass
class Item:
    """One file to fetch, with its history in this run."""

    file: Wanted
    failures: int = 0
    wrong: int = 0
    stalls: int = 0
    not_before: float = 0.0

    @property
    def is_small(self) -> bool:
        return self.file.size_bytes < SMALL_BYTES

    @property
    def has_xet(self) -> bool:
        return self.stalls < _STALLS_WITH_XET


class FetchQueue:
    """Small files first (a wrong token or revision shows at once), then the biggest. `wait_base_s`: the first pause.

    It knows `files`, and gives those that were offered: files and their history stay when they are offered again.
    """

    def __init__(self, files: Iterable[Wanted], *, wait_base_s: float, hints: Mapping[str, str] = HUB_HINTS) -> None:
        self._wait_base_s = wait_base_s
        self._hints = hints
        self._items = {file.path: Item(file) for file in files}
        self._waiting: list[str] = []
        self.retries = 0
        self.stalls = 0
        self.last_refusal: Refusal | None = None

    def offer(self, files: Iterable[Wanted]) -> None:
        """Let these be taken, in the order in which they are best begun."""
        new = {file.path for file in files}.difference(self._waiting)
        self._waiting = sorted([*self._waiting, *new], key=lambda path: self._order(self._items[path]))

    def withdraw(self, path: str) -> bool:
        """Take a file out that nobody has begun; False when it was taken already."""
        is_waiting = path in self._waiting
        if is_waiting:
            self._waiting.remove(path)
        return is_waiting

    def failures(self, path: str) -> int:
        """How often it was tried in vain."""
        return self._items[path].failures

    def next(self, now: float, *, is_small: bool) -> Item | None:
        """Take the next file of that kind whose pause is over."""
        for path in self._waiting:
            item = self._items[path]
            if item.is_small == is_small and item.not_before <= now:
                self._waiting.remove(path)
                return item
        return None

    def failed(self, path: str, failure: dict[str, Any], now: float) -> float:
        """Put a file back after a failure; returns the pause in seconds. Raises Refusal where it is no use."""
        item = self._items[path]
        item.failures += 1
        item.wrong += failure["kind"] == WRONG
        refusal = self.refusal(path, failure)
        if failure["kind"] in _FINAL or item.failures >= _MOST_FAILURES or item.wrong >= _MOST_WRONG:
            raise refusal
        self.last_refusal = refusal
        pause_s = min(_LONGEST_WAIT_S, self._wait_base_s * 2 ** (item.failures - 1)) * random.uniform(1.0, 1.25)
        item.not_before = now + max(pause_s, failure["wait_s"])
        self.retries += 1
        self._waiting.append(path)
        return item.not_before - now

    def stalled(self, path: str, stall_s: float) -> Item:
        """Put a file back after its transfer stood still. Raises Refusal when it did so on every road."""
        item = self._items[path]
        item.stalls += 1
        self.stalls += 1
        if item.stalls >= _MOST_STALLS:
            raise Refusal(
                f"{path} stood still for {stall_s:.0f} s, {item.stalls} times, with Xet and without",
                why="the process was alive but no byte arrived",
                fix="look at the node's route to the Hub, then run the same command again: finished files are kept",
                path=path,
                kind="hub",
            )
        self._waiting.insert(0, path)
        return item

    def dropped(self, path: str) -> None:
        """Put a file back that was in the hands of a process which ended for no fault of the file."""
        self._waiting.insert(0, path)

    @staticmethod
    def _order(item: Item) -> tuple[bool, int, str]:
        return (not item.is_small, -item.file.size_bytes, item.file.path)

    def refusal(self, path: str, failure: dict[str, Any]) -> Refusal:
        """What to say when this failure is the end of it."""
        failures = self._items[path].failures
        times = "" if failures == 1 else f" ({failures} tries)"
        return Refusal(
            f"cannot fetch {path}{times}",
            why=failure["text"],
            fix=_HINTS.get(failure["kind"]) or self._hints.get(failure["kind"]) or self._hints[RETRY],
            path=path,
            kind="disk" if failure["kind"] in (DISK_FULL, DISK_DENIED) else "hub",
        )
