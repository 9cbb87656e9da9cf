"""Whether the origin gives this node anything at all: then other nodes should do the fetching. No I/O."""

# One file may be bad. Three failures and nothing else for this many first pauses: it is the origin, or the way to it.
_FAILURES = 3
_PAUSES = 60


class OriginHealth:
    """`wait_base_s`: the pause after a first failure."""

    def __init__(self, wait_base_s: float) -> None:
        self.patience_s = _PAUSES * wait_base_s
        self.is_down = False
        self._moved_bytes = 0
        self._failures = 0
        self._failing_since: float | None = None

    def look(self, moved_bytes: int, failures: int, now: float) -> None:
        """`failures`: of all files so far; `moved_bytes`: what came so far."""
        if moved_bytes > self._moved_bytes:
            self._moved_bytes, self._failures, self._failing_since = moved_bytes, failures, None
            self.is_down = False
        elif failures > self._failures and self._failing_since is None:
            self._failing_since = now
        elif self._failing_since is not None and failures - self._failures >= _FAILURES:
            self.is_down = now - self._failing_since > self.patience_s
