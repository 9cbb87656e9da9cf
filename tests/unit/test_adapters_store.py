"""The store in a folder and the way a store is named: what the contract suite does not ask."""

import errno
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from k3deploy.adapters.store.directory import DirectoryStore
from k3deploy.adapters.store.open import open_store
from k3deploy.domain.errors import StoreConflict, StoreError, UsageError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_plain_and_for_the_owner_alone(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "a" / "store")
    store.put("runs/r1/lock.yaml", b"profile: x\n")
    store.put_if_absent("runs/r1/lease.json", b"{}")
    assert (tmp_path / "a/store/runs/r1/lock.yaml").read_bytes() == b"profile: x\n"
    assert mode(tmp_path / "a/store/runs/r1/lock.yaml") == 0o600
    assert mode(tmp_path / "a/store/runs/r1/lease.json") == 0o600
    assert mode(tmp_path / "a/store") == mode(tmp_path / "a/store/runs/r1") == 0o700


def test_reading_makes_no_folder(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    assert (store.get("a"), store.list("")) == (None, [])
    store.delete("a")
    assert list(tmp_path.iterdir()) == []


def test_no_draft_stays_behind(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    tag = store.put_if_absent("a", b"1")
    store.put_if_match("a", b"2", tag)
    with pytest.raises(StoreConflict):
        store.put_if_absent("a", b"3")
    with pytest.raises(StoreConflict):
        store.put_if_match("a", b"3", tag)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a"]


def test_changed_and_changed_back_is_another_value(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    first = store.put_if_absent("a", b"one")
    store.put("a", b"two")
    store.put("a", b"one")
    with pytest.raises(StoreConflict):
        store.put_if_match("a", b"three", first)
    again = store.put_if_match("a", b"one", store.put("a", b"one"))
    store.delete("a")
    store.put_if_absent("a", b"one")
    with pytest.raises(StoreConflict):
        store.put_if_match("a", b"three", again)


def test_an_editors_change_is_a_change(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    tag = store.put("a", b"one")
    (tmp_path / "a").write_bytes(b"two")
    with pytest.raises(StoreConflict):
        store.put_if_match("a", b"three", tag)


def test_drafts_and_the_lock_are_not_listed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("runs/a", b"")
    (tmp_path / "runs" / ".tmp-0123").touch()
    assert store.list("") == ["runs/a"]


def test_a_file_system_without_hard_links_still_creates_once(tmp_path: Path) -> None:
    def no_links(_source: object, _target: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    store = DirectoryStore(tmp_path, link=no_links)
    tag = store.put_if_absent("a", b"one")
    with pytest.raises(StoreConflict):
        store.put_if_absent("a", b"two")
    found = store.get("a")
    assert found is not None
    assert (found.data, found.tag) == (b"one", tag)


def test_a_lock_that_stays_held_is_told(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, lock_timeout_s=0.1)
    store.put("a", b"")
    code = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreError, match="is locked by another process") as caught:
            store.put("a", b"")
        assert str(tmp_path / ".lock") in caught.value.fix
        assert holder.stdin is not None
        holder.stdin.close()
    store.put("a", b"")


@pytest.mark.parametrize("use", [lambda store: store.put("a/b", b""), lambda store: store.put_if_absent("a/b", b"")])
def test_a_folder_that_is_a_file_is_told(tmp_path: Path, use: Callable[[DirectoryStore], object]) -> None:
    (tmp_path / "file").write_text("x")
    store = DirectoryStore(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot write a/b in the store") as caught:
        use(store)
    assert caught.value.context["store"] == str(tmp_path / "file")


# Names of stores


def test_a_folder_is_a_store(tmp_path: Path) -> None:
    assert open_store(str(tmp_path)).describe() == str(tmp_path)
    assert open_store("~/x").describe() == str(Path("~/x").expanduser())


@pytest.mark.parametrize(
    ("url", "shown"),
    [("s3://runs", "s3://runs"), ("s3://k3.state/team/a/", "s3://k3.state/team/a"), ("S3://runs/x", "s3://runs/x")],
)
def test_a_bucket_with_a_prefix_is_a_store(url: str, shown: str) -> None:
    assert open_store(url).describe() == shown


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("", "is not a place to keep progress in"),
        ("gs://bucket", "is not a place to keep progress in"),
        ("https://host/bucket", "is not a place to keep progress in"),
        ("s3://", "cannot be the name of a bucket"),
        ("s3://Bucket/x", "cannot be the name of a bucket"),
        ("s3://ab", "cannot be the name of a bucket"),
        ("s3://bucket/a//b", "cannot be a prefix"),
        ("s3://bucket/../x", "cannot be a prefix"),
    ],
)
def test_what_is_no_store_is_told(url: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        open_store(url)


def test_boto3_is_loaded_only_when_it_is_asked_something() -> None:
    code = "from k3deploy.adapters.store.open import open_store; open_store('s3://runs/x'); import sys; "
    code += "print('boto3' in sys.modules, 'botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
