"""How fast a link is, measured in passing: only from what really came over it. No I/O, the clock is an argument."""

from collections import deque

_WINDOW_S = 1.0
_WINDOWS = 4
_RECENT_S = 4.0


class RateMeter:
    """For plans: what a link can do. Feed it the bytes moved so far, often.

    `bps` is the best of the last four windows of a second in which something was on its way: a link that waits for
    work is not a slow link, and one that became slow is known to be so after four windows. 0.0: not known yet.
    """

    def __init__(self) -> None:
        self.moved_bytes = 0
        self._at: float | None = None
        self._was_busy = False
        self._window_s = 0.0
        self._window_bytes = 0
        self._windows: deque[float] = deque(maxlen=_WINDOWS)

    def sample(self, now: float, moved_bytes: int, *, is_busy: bool) -> None:
        """`moved_bytes` may step back when a transfer fails and is taken up again: what came twice counts once."""
        gained = max(0, moved_bytes - self.moved_bytes)
        self.moved_bytes += gained
        if self._at is not None and self._was_busy:
            self._window_s += now - self._at
            self._window_bytes += gained
            if self._window_s >= _WINDOW_S:
                self._windows.append(self._window_bytes / self._window_s)
                self._window_s, self._window_bytes = 0.0, 0
        self._at, self._was_busy = now, is_busy

    @property
    def bps(self) -> float:
        return max(self._windows, default=0.0)


class RecentRate:
    """For people: what came in the last four seconds of the clock, waiting included."""

    def __init__(self) -> None:
        self.moved_bytes = 0
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, now: float, moved_bytes: int) -> None:
        """As for `RateMeter`."""
        self.moved_bytes = max(self.moved_bytes, moved_bytes)
        self._samples.append((now, self.moved_bytes))
        while self._samples[0][0] < now - _RECENT_S:
            self._samples.popleft()

    @property
    def bps(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / max(ended - began, 1e-3)
