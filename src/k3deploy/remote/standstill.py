"""Notice that nothing moves any more. No I/O, the clock is an argument."""


class Standstill:
    """Feed it, often, a mark that changes with everything that moves."""

    def __init__(self) -> None:
        self._mark: object = None
        self._since: float | None = None

    def for_s(self, mark: object, now: float) -> float:
        """Seconds since the mark last changed."""
        if self._since is None or mark != self._mark:
            self._mark, self._since = mark, now
        return now - self._since
