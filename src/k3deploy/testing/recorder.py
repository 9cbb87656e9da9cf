"""An EventSink that keeps what it was told."""

import threading
from typing import TypeVar

from k3deploy.domain.events import Event

Kind = TypeVar("Kind", bound=Event)


class Recorder:
    """`events` in the order they came. Safe to share between threads."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The events of one type, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def names(self) -> list[str]:
        """Type names in order: `["RunStarted", "PhaseStarted", ...]`."""
        return [type(event).__name__ for event in self.events]
