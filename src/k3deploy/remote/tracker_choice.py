"""Whom to ask for an answer: the first node in the run's order that gives one. No I/O, the clock is an argument."""

from collections.abc import Sequence
from typing import NamedTuple

# Shares come up at slightly different moments: whoever has not answered yet is given this long.
_SETTLE_S = 3.0
_LOOK_BACK_S = 5.0
_CONNECT_S = 2.0
# A node that was passed over is one switch away: it answers at once, or is still gone.
_GLANCE_S = 0.5


class Attempt(NamedTuple):
    """Ask this node, `times` times when need be, each time waiting so long for a connection."""

    node: str
    connect_s: float
    times: int


class TrackerChoice:
    """Everybody must ask the same node, or they would fetch the same files: so all come back to the earliest one."""

    def __init__(self, now: float) -> None:
        self._began_at = now
        self._looked_back_at = now
        self._current: str | None = None

    def is_settling(self, now: float) -> bool:
        """Nobody has answered yet, and it is too early to go on without."""
        return self._current is None and now - self._began_at < _SETTLE_S

    def attempts(self, nodes: Sequence[str], now: float) -> list[Attempt]:
        """In this order, until one answers. `nodes`: in the run's order."""
        current = self._current
        if current is None or current not in nodes:
            return [Attempt(node, _CONNECT_S, 1) for node in (nodes[:1] if self.is_settling(now) else nodes)]
        place = nodes.index(current)
        earlier = [Attempt(node, _GLANCE_S, 1) for node in nodes[:place]]
        others = [Attempt(current, _CONNECT_S, 2)]
        others += [Attempt(node, _CONNECT_S, 1) for node in nodes[place + 1 :]]
        if earlier and now - self._looked_back_at >= _LOOK_BACK_S:
            self._looked_back_at = now
            return earlier + others
        return others + earlier

    def answered(self, node: str, now: float) -> None:
        if node != self._current:
            self._current = node
            self._looked_back_at = now
