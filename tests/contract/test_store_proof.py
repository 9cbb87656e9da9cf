"""The proof refuses stores that do not keep their promises, each kind that exists, and says which promise."""

import threading

import pytest

from k3deploy.adapters.store.prove import PROOF_KEY, prove
from k3deploy.contracts import Stored
from k3deploy.domain.errors import StoreConflict, StoreError
from k3deploy.testing import MemoryStore


class IgnoresBoth(MemoryStore):
    """rclone serve s3, s3rver and others."""

    def put_if_absent(self, key: str, data: bytes) -> str:
        return self.put(key, data)

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        return self.put(key, data)


class IgnoresMatch(MemoryStore):
    """localbucket 1.2.1."""

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        return self.put(key, data)


class RefusesEveryMatch(MemoryStore):
    """A server that does not understand the tag's form, such as radosgw with a quoted one."""

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        raise StoreConflict(what=key, fix="-")


class CreatesByMatch(MemoryStore):
    """Checks a tag only where there is something to compare it with."""

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        return self.put(key, data) if self.get(key) is None else super().put_if_match(key, data, tag)


class WritesWhatItRefuses(MemoryStore):
    def put_if_absent(self, key: str, data: bytes) -> str:
        try:
            return super().put_if_absent(key, data)
        except StoreConflict:
            self.put(key, data)
            raise


class LooksThenWrites(MemoryStore):
    """Not atomic: everybody who looks before the first write believes to be the first."""

    def __init__(self) -> None:
        super().__init__()
        self._looking = threading.Barrier(8)

    def put_if_absent(self, key: str, data: bytes) -> str:
        if self.get(key) is not None:
            raise StoreConflict(what=key, fix="-")
        if key.endswith("-race"):
            self._looking.wait(10)
        return self.put(key, data)


class ForgetsWrites(MemoryStore):
    """Eventually consistent: what was written is not there yet."""

    def get(self, key: str) -> Stored | None:
        return None


@pytest.mark.parametrize(
    ("store", "ignored", "what"),
    [
        (IgnoresBoth(), "If-None-Match", "a key that exists was created again"),
        (IgnoresMatch(), "If-Match", "a write with an old tag took place"),
        (RefusesEveryMatch(), "If-Match", "a write with the right tag was refused"),
        (CreatesByMatch(), "If-Match", "a write with a tag made a key that did not exist"),
        (WritesWhatItRefuses(), "If-None-Match", "a write that was refused took place all the same"),
        (LooksThenWrites(), "If-None-Match", "8 of 8 simultaneous creations succeeded"),
        (ForgetsWrites(), "If-None-Match", "a write that was refused took place all the same"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else "",
)
def test_a_broken_promise_is_named(store: MemoryStore, ignored: str, what: str) -> None:
    with pytest.raises(StoreError) as caught:
        prove(store)
    assert caught.value.what == f"memory cannot keep a run's progress: {what}"
    assert caught.value.context["ignored"] == ignored
    assert store.list("") == []


def test_a_proof_of_another_kind_is_not_believed() -> None:
    store = IgnoresBoth()
    store.put(PROOF_KEY, b'{"schema": 0}')
    with pytest.raises(StoreError):
        prove(store)
