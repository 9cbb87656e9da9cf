"""How fast a node's link to the origin is, seen from the tracker: what came while something was on its way. Pure."""

from collections import deque

# huggingface_hub (2.4) writes so much at a time over plain HTTP: up to so much of a transfer is here, and unseen.
BLOCK_BYTES = 10 << 20
# What is looked back on is at least so long, and so many bytes.
_WINDOW_S = 7.0
_WINDOW_BYTES = 3 * BLOCK_BYTES
_ENOUGH_S = 1.0


class LinkRate:
    """Feed it a node's count of bytes with every report.

    It is measured from one moment at which bytes were seen to another: between them, a client may write nothing.
    """

    def __init__(self) -> None:
        self.total_bytes = 0
        self._at = 0.0
        self._moved_bytes = 0
        self._busy_s = 0.0
        self._seen: deque[tuple[float, int]] = deque()

    @property
    def bps(self) -> float | None:
        """None as long as too little was seen."""
        if not self._seen or self._seen[-1][0] - self._seen[0][0] < _ENOUGH_S:
            return None
        (began_s, before_bytes), (ended_s, after_bytes) = self._seen[0], self._seen[-1]
        return (after_bytes - before_bytes) / (ended_s - began_s)

    def sample(self, now: float, moved_bytes: int, *, was_busy: bool) -> None:
        """`was_busy`: something was on its way since the last sample. A smaller count than before is a new one."""
        if was_busy:
            self._busy_s += now - self._at
        if moved_bytes < self._moved_bytes:
            self._seen.clear()
            self._moved_bytes = 0
        self.total_bytes += moved_bytes - self._moved_bytes
        if moved_bytes > self._moved_bytes:
            self._seen.append((self._busy_s, moved_bytes))
            while len(self._seen) > 2 and self._is_enough(self._seen[1]):
                self._seen.popleft()
        self._at, self._moved_bytes = now, moved_bytes

    def _is_enough(self, since: tuple[float, int]) -> bool:
        busy_s, moved_bytes = self._seen[-1]
        return busy_s - since[0] >= _WINDOW_S and moved_bytes - since[1] >= _WINDOW_BYTES
