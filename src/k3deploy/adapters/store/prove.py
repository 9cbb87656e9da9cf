"""Prove that a store keeps its promises before a run trusts it.

There are S3 servers that accept If-None-Match and If-Match and do nothing with them (rclone serve s3, s3rver), or only
with one of them (localbucket 1.2.1): a lock kept there is imaginary. So a few writes are tried first that must fail.
The proof is kept in the store itself and costs one read from then on.
"""

import json
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from k3deploy.contracts import Store
from k3deploy.domain.errors import StoreConflict, StoreError

PROOF_KEY = "proof/conditional-writes.json"
PROOF = json.dumps({"schema": 1, "proved": ["create-once", "match", "stale-match", "race"]}).encode()
THREADS = 8


def prove(store: Store) -> None:
    """Raises StoreError naming what the store ignores; leaves the proof behind, and nothing else."""
    found = store.get(PROOF_KEY)
    if found is not None and found.data == PROOF:
        return
    key = f"proof/try-{secrets.token_hex(8)}"
    try:
        _creates_once(store, key)
        _matches(store, key)
        _races(store, f"{key}-race")
    finally:
        for name in (key, f"{key}-race", f"{key}-absent"):
            store.delete(name)
    store.put(PROOF_KEY, PROOF)


def _creates_once(store: Store, key: str) -> None:
    store.put_if_absent(key, b"first")
    _must_conflict(
        store, lambda: store.put_if_absent(key, b"second"), "a key that exists was created again", "If-None-Match"
    )
    found = store.get(key)
    if found is None or found.data != b"first":
        raise _untrustworthy(store, "a write that was refused took place all the same", "If-None-Match")


def _matches(store: Store, key: str) -> None:
    first = store.get(key)
    if first is None:
        raise _untrustworthy(store, "a key that was just written is not there", "reading after writing")
    try:
        second = store.put_if_match(key, b"second", first.tag)
    except StoreConflict as err:
        raise _untrustworthy(store, "a write with the right tag was refused", "If-Match") from err
    _must_conflict(
        store, lambda: store.put_if_match(key, b"third", first.tag), "a write with an old tag took place", "If-Match"
    )
    found = store.get(key)
    if found is None or found.data != b"second" or found.tag != second:
        raise _untrustworthy(store, "a write that was refused took place all the same", "If-Match")
    _must_conflict(
        store,
        lambda: store.put_if_match(f"{key}-absent", b"x", second),
        "a write with a tag made a key that did not exist",
        "If-Match",
    )


def _races(store: Store, key: str) -> None:
    def create(number: int) -> bytes | None:
        data = f"writer {number}".encode()
        try:
            store.put_if_absent(key, data)
        except StoreConflict:
            return None
        return data

    with ThreadPoolExecutor(THREADS) as pool:
        winners = [data for data in pool.map(create, range(THREADS)) if data is not None]
    found = store.get(key)
    if len(winners) != 1 or found is None or found.data != winners[0]:
        raise _untrustworthy(store, f"{len(winners)} of {THREADS} simultaneous creations succeeded", "If-None-Match")


def _must_conflict(store: Store, write: Callable[[], object], what_happened: str, ignored: str) -> None:
    try:
        write()
    except StoreConflict:
        return
    raise _untrustworthy(store, what_happened, ignored)


def _untrustworthy(store: Store, what_happened: str, ignored: str) -> StoreError:
    return StoreError(
        what=f"{store.describe()} cannot keep a run's progress: {what_happened}",
        why=f"it does not honour {ignored}, so two operators could each believe that they alone drive a run",
        fix="use a folder (--store PATH), or an S3 server with conditional writes: Amazon S3, Ceph, MinIO and others",
        context={"store": store.describe(), "ignored": ignored},
    )
