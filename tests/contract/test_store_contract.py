"""What every Store does: in memory, in a folder, and on two independent S3 servers."""

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from k3deploy.adapters.store.directory import DirectoryStore
from k3deploy.adapters.store.overlay import OverlayStore
from k3deploy.adapters.store.prove import PROOF_KEY, prove
from k3deploy.adapters.store.s3 import S3Store
from k3deploy.adapters.store.s3_client import make_client
from k3deploy.contracts import Store
from k3deploy.domain.errors import StoreConflict
from k3deploy.testing import MemoryStore
from tests.lab import ministack, s3

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

THREADS = 20


@pytest.fixture(scope="session")
def moto() -> Iterator["S3Client"]:
    server = s3.serve("127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with client_of(f"http://127.0.0.1:{server.port}") as client:
        yield client
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def second() -> Iterator["S3Client"]:
    with ExitStack() as stack:
        try:
            url = stack.enter_context(ministack.running())
        except ministack.MinistackError as err:  # no package index here; in CI a skip is a failure
            pytest.skip(f"no ministack: {err}")
        yield stack.enter_context(client_of(url))


@contextmanager
def client_of(url: str) -> Iterator["S3Client"]:
    """The client that the store would make, once for all tests, and a bucket."""
    settings = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        client = make_client("runs")
    client.create_bucket(Bucket="runs")
    yield client
    client.close()


@pytest.fixture(params=["memory", "folder", "overlay", "moto", "ministack"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "folder":
        return DirectoryStore(tmp_path / "store")
    if request.param == "overlay":
        return OverlayStore(MemoryStore())
    client = request.getfixturevalue("moto" if request.param == "moto" else "second")
    return S3Store("runs", f"team/{secrets.token_hex(8)}", make_client=lambda _bucket: client)


def test_what_was_written_is_read(store: Store) -> None:
    assert store.get("runs/a.json") is None
    tag = store.put("runs/a.json", b"one")
    found = store.get("runs/a.json")
    assert found is not None
    assert (found.data, found.tag) == (b"one", tag)


def test_any_bytes_can_be_kept(store: Store) -> None:
    for key, data in (("empty", b""), ("bytes", bytes(range(256))), ("large", b"x" * 3_000_000)):
        store.put(key, data)
        found = store.get(key)
        assert found is not None
        assert found.data == data


def test_put_replaces(store: Store) -> None:
    first = store.put("a", b"one")
    second = store.put("a", b"two")
    assert first != second
    found = store.get("a")
    assert found is not None
    assert found.data == b"two"


def test_a_key_is_created_once(store: Store) -> None:
    tag = store.put_if_absent("a", b"one")
    with pytest.raises(StoreConflict):
        store.put_if_absent("a", b"two")
    found = store.get("a")
    assert found is not None
    assert (found.data, found.tag) == (b"one", tag)


def test_a_deleted_key_can_be_created_again(store: Store) -> None:
    store.put_if_absent("a", b"one")
    store.delete("a")
    assert store.get("a") is None
    store.put_if_absent("a", b"two")


def test_the_right_tag_replaces(store: Store) -> None:
    first = store.put_if_absent("a", b"one")
    second = store.put_if_match("a", b"two", first)
    third = store.put_if_match("a", b"three", second)
    found = store.get("a")
    assert found is not None
    assert (found.data, found.tag) == (b"three", third)


def test_an_old_tag_does_not_replace(store: Store) -> None:
    first = store.put_if_absent("a", b"one")
    store.put_if_match("a", b"two", first)
    with pytest.raises(StoreConflict):
        store.put_if_match("a", b"three", first)
    found = store.get("a")
    assert found is not None
    assert found.data == b"two"


def test_a_tag_of_something_gone_does_not_bring_it_back(store: Store) -> None:
    tag = store.put_if_absent("a", b"one")
    store.delete("a")
    with pytest.raises(StoreConflict):
        store.put_if_match("a", b"two", tag)
    assert store.get("a") is None


def test_a_conflict_names_the_key(store: Store) -> None:
    store.put("runs/r1/lease.json", b"one")
    with pytest.raises(StoreConflict, match=r"runs/r1/lease\.json") as caught:
        store.put_if_absent("runs/r1/lease.json", b"two")
    assert caught.value.context["key"] == "runs/r1/lease.json"


def test_deleting_what_is_not_there_is_fine(store: Store) -> None:
    store.put("something/here", b"kept")
    store.delete("nothing/here")
    assert store.list("") == ["something/here"]


def test_keys_are_listed_by_prefix_in_order(store: Store) -> None:
    assert store.list("") == []
    keys = ["runs/r1/events/00000002.jsonl", "runs/r1/events/00000001.jsonl", "runs/r1/lease.json", "runs/r10/x", "z"]
    for key in keys:
        store.put(key, b"")
    assert store.list("") == sorted(keys)
    assert store.list("runs/r1/events/") == ["runs/r1/events/00000001.jsonl", "runs/r1/events/00000002.jsonl"]
    assert store.list("runs/r1") == sorted(keys)[:4]
    assert store.list("runs/r2/") == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a b", "ä", "a\n", "x" * 600])
def test_keys_that_some_store_could_not_hold_are_refused(store: Store, key: str) -> None:
    for use in (store.get, store.delete, lambda key: store.put(key, b""), lambda key: store.put_if_absent(key, b"")):
        with pytest.raises(ValueError, match="not a store key"):
            use(key)


def test_of_many_that_create_one_wins(store: Store) -> None:
    for key in ("race/0", "race/1"):
        winners = race(lambda name, key=key: store.put_if_absent(key, name))  # type: ignore[misc]
        found = store.get(key)
        assert found is not None
        assert winners == [found.data]


def test_of_many_that_replace_one_wins(store: Store) -> None:
    tag = store.put_if_absent("race", b"start")
    for _ in range(2):
        winners = race(lambda name, seen=tag: store.put_if_match("race", name, seen))  # type: ignore[misc]
        found = store.get("race")
        assert found is not None
        assert winners == [found.data]
        tag = found.tag


def test_no_increment_is_lost(store: Store) -> None:
    """What a lease or an event counter does: read, change, write with the tag, again on conflict."""
    store.put_if_absent("counter", b"0")

    def add(_number: int) -> None:
        while True:
            found = store.get("counter")
            assert found is not None
            try:
                store.put_if_match("counter", str(int(found.data) + 1).encode(), found.tag)
            except StoreConflict:
                continue
            return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(12)))
    found = store.get("counter")
    assert found is not None
    assert found.data == b"12"


def test_the_proof_costs_one_read_the_second_time(store: Store) -> None:
    prove(store)
    assert store.list("") == [PROOF_KEY]
    prove(_ReadOnly(store))


def race(write: Callable[[bytes], object]) -> list[bytes]:
    """All at once; the names of those whose write took place."""
    start = threading.Barrier(THREADS)

    def attempt(number: int) -> bytes | None:
        # Never the same content twice: an S3 tag follows the content, and an equal one would still match.
        name = f"writer {number} {secrets.token_hex(4)}".encode()
        start.wait(30)
        try:
            write(name)
        except StoreConflict:
            return None
        return name

    with ThreadPoolExecutor(THREADS) as pool:
        return [name for name in pool.map(attempt, range(THREADS)) if name is not None]


class _ReadOnly(MemoryStore):
    """Answers one read with what another store holds, and allows nothing else."""

    def __init__(self, base: Store) -> None:
        super().__init__()
        found = base.get(PROOF_KEY)
        assert found is not None
        super().put(PROOF_KEY, found.data)
        self._reads = 1

    def get(self, key: str):  # type: ignore[no-untyped-def]
        self._reads -= 1
        assert self._reads >= 0
        return super().get(key)

    def put(self, key: str, data: bytes) -> str:
        raise AssertionError(key)

    put_if_absent = put
