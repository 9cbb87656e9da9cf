"""The run's append-only log in the store: batches of JSON lines. Intent is on record before the act begins."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from k3deploy.contracts import Store
from k3deploy.domain import events as ev
from k3deploy.domain.errors import StoreConflict, StoreError
from k3deploy.domain.run import Keys

_MUST_BE_KEPT = (ev.StepStarted, ev.RunFinished)


@dataclass
class EventLog:
    """An EventSink. Progress is shown elsewhere, not stored. Safe for several threads and several writers.

    `emit` raises StoreError for what has to be on record before anything goes on: a step that is about to start, and
    the end of a run. Everything else that cannot be written now waits for the next batch, so that an outage of the
    store neither hides a failure nor undoes the record of work that is done.
    """

    store: Store
    keys: Keys
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: list[ev.Event] = field(default_factory=list)
    _next_batch: int | None = None

    def emit(self, event: ev.Event) -> None:
        if isinstance(event, ev.Progressed):
            return
        with self._lock:
            self._waiting.append(event)
            if isinstance(event, _MUST_BE_KEPT):
                self._flush()
            elif isinstance(event, ev.TargetFailed) or (isinstance(event, ev.Verified) and event.has_changed):
                with suppress(StoreError):
                    self._flush()

    def close(self) -> None:
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._next_batch is None:
            known = self.store.list(self.keys.events)
            self._next_batch = 1 + max((_batch_number(key) for key in known), default=0)
        while True:
            lines = [event.to_json(self._next_batch * 1000 + at) for at, event in enumerate(self._waiting)]
            try:
                self.store.put_if_absent(self.keys.event_batch(self._next_batch), ("\n".join(lines) + "\n").encode())
            except StoreConflict:  # another writer took the number: ours comes after it
                self._next_batch += 1
                continue
            break
        self._next_batch += 1
        self._waiting.clear()


def _batch_number(key: str) -> int:
    stem = key.rsplit("/", 1)[-1].removesuffix(".jsonl")
    return int(stem) if stem.isdigit() else 0


def read_events(store: Store, keys: Keys) -> Iterator[ev.Event]:
    """All events of a run in order. Those of a newer version are left out, and so are damaged lines: the rest of the
    log still tells where the run stands."""
    for key in store.list(keys.events):
        stored = store.get(key)
        if stored is None:
            continue
        for line in stored.data.splitlines():
            with suppress(ValueError, TypeError):
                event = ev.from_json(line.decode())
                if event is not None:
                    yield event
