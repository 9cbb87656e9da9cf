"""A point in time after which nothing may wait any longer."""

import time


class Deadline:
    """`after_s` seconds from now, by the monotonic clock."""

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self._ends = time.monotonic() + after_s

    @property
    def remaining_s(self) -> float:
        """Seconds that are left, never below zero."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def text(self) -> str:
        """How long it was, for people: "4.9 s"."""
        return seconds_text(self.after_s)

    @property
    def is_over(self) -> bool:
        return self.remaining_s == 0.0


def seconds_text(seconds: float) -> str:
    return f"{round(seconds, 1):g} s"
