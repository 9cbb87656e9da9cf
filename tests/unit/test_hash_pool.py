"""Large files are read past the page cache or into it, and hashed at once."""

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote.hash_pool import Hashed, HashPool, Task, thread_count
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.page_cache import cached_bytes
from k3deploy.remote.shard_reader import BLOCK_BYTES, block_buffer, blocks
from tests.unit.weights_world import drop

# Neither a whole number of blocks nor of disk sectors.
SIZE = 2 * BLOCK_BYTES + 777
GONE = Wanted("gone", 5, "", is_sha256=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shard"
    path.write_bytes(os.urandom(SIZE))
    drop(path)
    return path


def _read(path: Path, *, keep_cached: bool, from_disk: bool = False) -> bytes:
    return b"".join(bytes(b) for b in blocks(str(path), block_buffer(), keep_cached=keep_cached, from_disk=from_disk))


def test_a_file_is_read_past_the_page_cache(file: Path) -> None:
    content = _read(file, keep_cached=False)
    assert cached_bytes(str(file)) == 0
    assert content == file.read_bytes()


def test_what_was_in_memory_stays_there(file: Path) -> None:
    file.read_bytes()
    _read(file, keep_cached=False)
    assert cached_bytes(str(file)) == SIZE


@pytest.mark.parametrize("from_disk", [False, True])
def test_a_file_is_read_into_the_page_cache_where_it_is_wanted_next(file: Path, from_disk: bool) -> None:
    content = _read(file, keep_cached=True, from_disk=from_disk)
    assert cached_bytes(str(file)) == SIZE
    assert content == file.read_bytes()


def test_a_file_system_that_knows_no_direct_reading_is_read_all_the_same() -> None:
    content = Path("/proc/self/limits").read_bytes()
    assert _read(Path("/proc/self/limits"), keep_cached=False) == content


def test_a_disk_that_refuses_a_direct_read_is_read_all_the_same(file: Path) -> None:
    # The kernel refuses direct reads to memory that begins at an odd address.
    odd: Any = memoryview(block_buffer())[1:]
    assert b"".join(bytes(block) for block in blocks(str(file), odd, keep_cached=False)) == file.read_bytes()


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES])
def test_any_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * size)
    assert _read(path, keep_cached=False) == b"x" * size


def _task(number: int, path: Path, *, is_sha256: bool = True) -> Task:
    return Task(number, Wanted(path.name, path.stat().st_size, "", is_sha256), str(path))


def test_every_file_gives_its_digest(tmp_path: Path, file: Path) -> None:
    (tmp_path / "small").write_bytes(b"hello\n")
    pool = HashPool(keep_cached=False, from_disk=True)
    tasks = [_task(0, tmp_path / "small", is_sha256=False), _task(1, file)]
    found = sorted(each for each in pool.run(tasks, threads=2) if each is not None)
    # `printf 'hello\n' | git hash-object --stdin`
    assert found[0] == Hashed(0, "ce013625030ba8dba906f756967f9e9ca394464a", "")
    assert found[1] == Hashed(1, hashlib.sha256(file.read_bytes()).hexdigest(), "")
    assert pool.bytes_done == SIZE + 6


def test_a_file_that_cannot_be_read_says_why_and_the_others_go_on(tmp_path: Path, file: Path) -> None:
    gone = Task(0, GONE, str(tmp_path / "gone"))
    found = sorted(each for each in HashPool(keep_cached=True, from_disk=False).run([gone, _task(1, file)], 1) if each)
    assert "No such file" in found[0].error
    assert found[1].error == ""


def test_a_mistake_of_ours_is_not_taken_for_a_bad_disk() -> None:
    with pytest.raises(ValueError, match="embedded null byte"):
        list(HashPool(keep_cached=True, from_disk=False).run([Task(0, GONE, "\0")], 1))


def test_biggest_first(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path, size in zip(paths, (10, 30, 20), strict=True):
        path.write_bytes(b"x" * size)
    tasks = [_task(number, path) for number, path in enumerate(paths)]
    found = [each.number for each in HashPool(keep_cached=True, from_disk=False).run(tasks, 1) if each]
    assert found == [1, 2, 0]


def test_leaving_early_ends_the_threads(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, which nobody waits for
    pool = HashPool(keep_cached=True, from_disk=False)
    before = threading.active_count()
    running = pool.run([_task(0, path)], 1, tick_s=0.01)
    assert next(running) is None
    assert threading.active_count() == before + 1
    running.close()
    assert threading.active_count() == before


def test_no_thread_without_a_file() -> None:
    assert thread_count(1) == 1
    assert thread_count(0) == 1
    assert thread_count(1000) <= 32
