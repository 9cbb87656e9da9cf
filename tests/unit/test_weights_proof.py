"""Every way in which weights can be wrong on a node is found, by a proof that reads no more than it must.

The rows of FAULTS are those that a check of names and counts passes as complete (measured by mutating a real cache).
"""

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote.hub_cache import Found
from k3deploy.remote.sections.weights import answer
from k3deploy.remote.stamps import identity
from tests.unit.remote_program import finish, let_others_in, run, start
from tests.unit.weights_world import Cache, World, empty_cache, world

__all__ = ["world"]

ONE = "model-00001-of-000012.safetensors"
TWO = "model-00002-of-000012.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def cache(world: World, tmp_path: Path) -> Cache:
    return empty_cache(world, tmp_path).fill()


def _truncate(cache: Cache) -> None:
    os.truncate(cache.blob(ONE), 640)


def _empty(cache: Cache) -> None:
    os.truncate(cache.blob(ONE), 0)


def _flip_bit(cache: Cache) -> None:
    with cache.blob(ONE).open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-100, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def _link_to_another(cache: Cache) -> None:
    cache.link(ONE).unlink()
    cache.link(ONE).symlink_to(cache.link(TWO).readlink())


def _wrong_header(cache: Cache) -> None:
    with cache.blob(ONE).open("r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        file.seek(0)
        file.write(struct.pack("<Q", length + 8))


def _index_names_absent(cache: Cache) -> None:
    path = cache.blob(INDEX)
    text = path.read_text()
    # The same length, so that the size says nothing.
    path.write_text(text.replace("model-00012-of-000012", "model-00013-of-000012"))


def _no_code(cache: Cache) -> None:
    for name in ("tiktoken.model", "tokenization_kimi.py", "modeling_kimi_k3.py"):
        cache.link(name).unlink()


def _dangling(cache: Cache) -> None:
    cache.blob(ONE).unlink()


def _no_link(cache: Cache) -> None:
    cache.link(ONE).unlink()


def _link_leaves(cache: Cache) -> None:
    outside = cache.folder / cache.blob(ONE).name
    shutil.move(cache.blob(ONE), outside)
    cache.link(ONE).unlink()
    cache.link(ONE).symlink_to(outside)


def _other_snapshot_is_whole(cache: Cache) -> None:
    shutil.copytree(cache.snapshot, cache.snapshot.parent / ("0" * 40), symlinks=True)
    cache.link(TWO).unlink()


def _folder_in_place(cache: Cache) -> None:
    cache.blob(ONE).unlink()
    cache.blob(ONE).mkdir()


@dataclass(frozen=True)
class Fault:
    name: str
    make: Callable[[Cache], None]
    quick: set[tuple[str, str]]  # (path, kind) found without hashing
    full: set[tuple[str, str]]


FAULTS = [
    Fault("short blob", _truncate, {(ONE, "size")}, {(ONE, "size")}),
    Fault("empty blob", _empty, {(ONE, "size")}, {(ONE, "size")}),
    Fault("bit flip", _flip_bit, set(), {(ONE, "digest")}),
    Fault("another shard's blob", _link_to_another, {(ONE, "wrong-link")}, {(ONE, "wrong-link")}),
    Fault("wrong header length", _wrong_header, {(ONE, "header")}, {(ONE, "header"), (ONE, "digest")}),
    Fault(
        "index names an absent shard", _index_names_absent, {(INDEX, "index")}, {(INDEX, "index"), (INDEX, "digest")}
    ),
    Fault(
        "tokenizer and code missing",
        _no_code,
        {("tiktoken.model", "missing"), ("tokenization_kimi.py", "missing"), ("modeling_kimi_k3.py", "missing")},
        {("tiktoken.model", "missing"), ("tokenization_kimi.py", "missing"), ("modeling_kimi_k3.py", "missing")},
    ),
    Fault("another snapshot is whole, ours is not", _other_snapshot_is_whole, {(TWO, "missing")}, {(TWO, "missing")}),
    Fault("dangling link", _dangling, {(ONE, "dangling")}, {(ONE, "dangling")}),
    Fault("no link", _no_link, {(ONE, "missing")}, {(ONE, "missing")}),
    Fault("link out of the cache", _link_leaves, {(ONE, "outside")}, {(ONE, "outside")}),
    Fault("a folder in place of the blob", _folder_in_place, {(ONE, "not-a-file")}, {(ONE, "not-a-file")}),
]


def _kinds(result: Any) -> set[tuple[str, str]]:
    return {(fault["path"], fault["kind"]) for fault in result["faults"]}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_is_found(cache: Cache, fault: Fault) -> None:
    fault.make(cache)
    assert _kinds(cache.prove("quick")) == fault.quick
    assert _kinds(cache.prove("full")) == fault.full
    # What the full proof learned, the standing question knows from then on, without reading weights.
    missing = {path for path, kind in fault.full if kind != "index"}
    assert {file["path"] for file in cache.ask()["missing"]} == (missing or {INDEX})


def test_good_weights_have_no_fault_at_any_level(cache: Cache) -> None:
    quick = cache.prove("quick")
    assert quick["faults"] == []
    assert (quick["hashed"], quick["proved"]) == (0, 0)
    full = cache.prove("full")
    assert full["faults"] == []
    # 12 shards + index + 16 small files; the sizes are those of the lab's own list for this checkpoint.
    assert (full["files"], full["shards"], full["hashed"], full["proved"]) == (29, 12, 29, 29)
    assert (full["bytes"], full["hashed_bytes"]) == (1258977, 1258977)
    assert full["commit"] == cache.manifest["commit"]


def test_the_fault_says_what_was_found_and_wanted(cache: Cache) -> None:
    os.truncate(cache.blob(ONE), 640)
    (fault,) = cache.prove("quick")["faults"]
    size = cache.world.file(ONE)["size"]
    assert fault == {"path": ONE, "kind": "size", "found": "640 bytes", "wanted": f"{size} bytes"}


def test_a_tensor_that_moved_to_another_shard_is_found(cache: Cache) -> None:
    index = json.loads(cache.blob(INDEX).read_text())
    tensor = next(name for name, shard in index["weight_map"].items() if shard == ONE)
    index["weight_map"][tensor] = TWO
    cache.blob(INDEX).write_text(json.dumps(index, indent=2) + "\n")
    faults = {fault["path"]: fault for fault in cache.prove("quick")["faults"]}
    assert faults[ONE]["kind"] == faults[TWO]["kind"] == "tensors"
    assert faults[ONE]["found"] == f"holds {tensor}"
    assert faults[TWO]["found"] == f"lacks {tensor}"


def test_a_stale_partial_file_is_listed_with_its_size(cache: Cache) -> None:
    name = cache.blob(ONE).name + ".1a2b3c4d.incomplete"
    (cache.blobs / name).write_bytes(b"x" * 5000)
    assert cache.prove("full")["partials"] == [{"name": name, "bytes": 5000, "pid": None}]
    assert cache.ask()["partials"] == [{"name": name, "bytes": 5000, "pid": None}]


def test_a_partial_file_that_is_being_written_names_its_writer(cache: Cache) -> None:
    name = cache.blob(ONE).name + ".1a2b3c4d.incomplete"
    with (cache.blobs / name).open("wb") as file:
        file.write(b"x" * 5000)
        file.flush()
        assert cache.ask()["partials"] == [{"name": name, "bytes": 5000, "pid": os.getpid()}]


def test_blobs_that_are_links_into_the_shared_store_are_good(cache: Cache) -> None:
    shared = cache.hf_home / "hub" / "blobs" / "ab"
    shared.mkdir(parents=True)
    shutil.move(cache.blob(ONE), shared / ("f" * 64))
    cache.blob(ONE).symlink_to(os.path.relpath(shared / ("f" * 64), cache.blobs))
    assert cache.prove("full")["faults"] == []


def test_a_cache_behind_a_link_is_good(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(cache.hf_home)
    args = {**cache.args(level="full"), "hf_home": str(tmp_path / "elsewhere")}
    assert run("hashing", args).result["faults"] == []


def test_the_standing_question_about_an_empty_disk(world: World, tmp_path: Path) -> None:
    answer = empty_cache(world, tmp_path).ask()
    assert len(answer["missing"]) == 29
    assert {file["kind"] for file in answer["missing"]} == {"missing"}
    assert answer["missing_bytes"] == 1258977
    assert answer["free_bytes"] > 0
    assert (answer["proved"], answer["is_structure_proved"], answer["main_commit"]) == (0, False, None)


def test_a_standing_question_about_proved_weights_reads_none_of_them(cache: Cache) -> None:
    cache.prove()
    before = _bytes_read()
    found = answer(cache.args())
    assert found["proved"] == 29
    assert found["is_structure_proved"]
    assert 0 < _bytes_read() - before < 50_000  # the stamps; the weights are 1.26 MB


def _bytes_read() -> int:
    """What this process has asked the kernel to read so far, from page cache or disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_the_name_is_made_to_mean_the_commit(cache: Cache) -> None:
    args = {"hf_home": str(cache.hf_home), "repo": cache.manifest["repo"], "commit": cache.manifest["commit"]}
    assert run("weights_ref", args).result == {"before": None}
    assert (cache.repository / "refs" / "main").read_text() == cache.manifest["commit"]
    assert cache.ask()["main_commit"] == cache.manifest["commit"]
    assert run("weights_ref", args).result == {"before": cache.manifest["commit"]}


class TestStamps:
    def test_a_second_proof_hashes_nothing(self, cache: Cache) -> None:
        assert cache.prove()["hashed"] == 29
        again = cache.prove()
        assert (again["hashed"], again["proved"], again["faults"]) == (0, 29, [])

    def test_a_full_proof_ignores_them(self, cache: Cache) -> None:
        cache.prove()
        assert cache.prove("full")["hashed"] == 29

    def test_only_what_was_touched_is_hashed_again(self, cache: Cache) -> None:
        cache.prove()
        data = cache.blob(TWO).read_bytes()
        cache.blob(TWO).write_bytes(data)
        assert cache.ask()["proved"] == 28
        again = cache.prove()
        assert (again["hashed"], again["proved"]) == (1, 29)

    def test_a_change_that_puts_the_time_back_is_noticed(self, cache: Cache) -> None:
        cache.prove()
        before = cache.blob(ONE).stat()
        _flip_bit(cache)
        os.utime(cache.blob(ONE), ns=(before.st_atime_ns, before.st_mtime_ns))
        assert cache.ask()["proved"] == 28
        assert _kinds(cache.prove()) == {(ONE, "digest")}

    def test_headers_and_index_count_as_proved_only_with_the_bytes_they_were_read_from(self, cache: Cache) -> None:
        cache.prove()
        assert cache.ask()["is_structure_proved"]
        cache.blob(INDEX).touch()
        assert not cache.ask()["is_structure_proved"]

    def test_a_bad_file_is_remembered_and_counted(self, cache: Cache) -> None:
        _flip_bit(cache)
        assert cache.prove("full")["mismatches"] == {}
        assert cache.prove("full")["mismatches"] == {ONE: 2}

    def test_hold_when_the_disk_has_another_number_after_a_reboot(self, cache: Cache) -> None:
        status = list(cache.blob(ONE).stat()[:10])
        moved = [*status[:2], status[2] + 1, *status[3:]]  # mode, inode, device, ...
        here, there = (Found("x", os.stat_result(each)) for each in (status, moved))
        assert identity(here) == identity(there)

    def test_of_another_commit_say_nothing(self, cache: Cache) -> None:
        cache.prove()
        other = {**cache.manifest, "commit": "1" * 40}
        (cache.snapshot.parent / ("1" * 40)).symlink_to(cache.snapshot)
        assert run("hashing", {**cache.args(level="quick"), "manifest": other}).result["proved"] == 0

    def test_a_damaged_stamp_file_means_that_nothing_is_known(self, cache: Cache) -> None:
        cache.prove()
        (stamp,) = (cache.repository / ".k3deploy").iterdir()
        stamp.write_text("{")
        assert cache.ask()["proved"] == 0
        assert cache.prove()["hashed"] == 29

    def test_a_file_that_cannot_be_read_is_bad(self, cache: Cache, tmp_path: Path) -> None:
        # No disk is broken here: an unreadable file stands for one (the program runs as somebody who may not read it).
        if os.geteuid() == 0:
            let_others_in(tmp_path)
            cache.repository.chmod(0o777)
        cache.blob(ONE).chmod(0)
        result = _as_nobody(cache)
        assert _kinds(result) == {(ONE, "header"), (ONE, "digest")}
        assert "Permission denied" in str(result["faults"])


def _as_nobody(cache: Cache) -> Any:
    user: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    return finish(start("hashing", cache.args(level="full"), (), "/usr/bin/python3", **user)).result
