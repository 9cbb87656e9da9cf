"""Time that moves only when somebody sleeps, and a Ctrl-C that a test can place."""

from k3deploy.contracts import Clock


class FakeClock:
    """`sleep` advances both readings at once. `slept` keeps every sleep in seconds."""

    def __init__(self, *, now: float = 1_800_000_000.0, monotonic: float = 1_000.0) -> None:
        self._now = now
        self._monotonic = monotonic
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("cannot sleep a negative time")
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass without anybody sleeping."""
        self._now += seconds
        self._monotonic += seconds


class FakeCancel:
    """Never waits for real. With a clock, a wait advances it; `after_waits=n` sets it during the n-th wait."""

    def __init__(self, *, clock: Clock | None = None, after_waits: int | None = None) -> None:
        self._clock = clock
        self._waits_left = after_waits
        self._is_set = False

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout_s: float) -> bool:
        if self._is_set:
            return True
        if self._waits_left is not None:
            self._waits_left -= 1
            if self._waits_left <= 0:
                self._is_set = True
                return True
        if self._clock is not None:
            self._clock.sleep(timeout_s)
        return False
