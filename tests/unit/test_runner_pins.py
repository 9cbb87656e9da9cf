"""Pins over a store: the first writer wins, and what was settled is read once."""

from k3deploy.contracts import Stored
from k3deploy.domain.names import RunId
from k3deploy.domain.run import Keys
from k3deploy.runner.pins import StorePins
from k3deploy.testing import MemoryStore

KEYS = Keys(RunId("h100x32-20260728-074500-0a1b"))


class Counting(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def get(self, key: str) -> Stored | None:
        self.reads += 1
        return super().get(key)


def test_the_first_writer_wins() -> None:
    store = Counting()
    first, second = StorePins(store, KEYS), StorePins(store, KEYS)
    assert first.settle("image", {"digest": "a"}) == {"digest": "a"}
    assert second.settle("image", {"digest": "b"}) == {"digest": "a"}
    assert second.get("image") == {"digest": "a"}


def test_what_is_settled_is_read_once_and_what_is_not_is_looked_for_again() -> None:
    store = Counting()
    mine, theirs = StorePins(store, KEYS), StorePins(store, KEYS)
    assert mine.get("image") is None
    assert mine.get("image") is None
    assert store.reads == 2, "somebody else may settle it any time"
    theirs.settle("image", {"digest": "a"})
    for _ in range(3):
        assert mine.get("image") == {"digest": "a"}
        assert theirs.get("image") == {"digest": "a"}
    assert store.reads == 3
