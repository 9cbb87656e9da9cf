"""A proof of weights tells what is wrong in words, reads no more than it must, and remembers what it read."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote.hub_cache import Found, Repository, Wanted
from k3deploy.remote.proof import Proof
from k3deploy.remote.sections.weights import answer
from k3deploy.remote.stamps import Stamps, identity
from tests.unit.remote_program import finish, let_others_in, run, start
from tests.unit.weights_world import Cache, World, empty_cache, world

__all__ = ["world"]

ONE = "model-00001-of-000012.safetensors"
TWO = "model-00002-of-000012.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def cache(world: World, tmp_path: Path) -> Cache:
    return empty_cache(world, tmp_path).fill()


def _flip_bit(cache: Cache) -> None:
    with cache.blob(ONE).open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-100, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def _kinds(result: Any) -> set[tuple[str, str]]:
    return {(fault["path"], fault["kind"]) for fault in result["faults"]}


def test_good_weights_have_no_fault_at_any_level(cache: Cache) -> None:
    quick = cache.prove("quick")
    assert quick["faults"] == []
    # 16 files have no sha256: code, configuration, index, texts. The 12 shards and the tokenizer's model are not read.
    assert (quick["hashed"], quick["proved"]) == (16, 16)
    full = cache.prove("full")
    assert full["faults"] == []
    # 12 shards + index + 16 small files; the sizes are those of the lab's own list for this checkpoint.
    assert (full["files"], full["hashed"], full["proved"]) == (29, 29, 29)
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


def test_a_wanted_file_that_is_being_downloaded_is_not_done(cache: Cache) -> None:
    name = cache.blob(ONE).name + ".1a2b3c4d.incomplete"
    with (cache.blobs / name).open("wb"):
        (fault,) = cache.prove("full")["faults"]
    assert fault == {
        "path": ONE,
        "kind": "running",
        "found": f"a download by process {os.getpid()}",
        "wanted": "a finished one",
    }


def test_a_download_of_something_else_is_nobodys_business(cache: Cache) -> None:
    with (cache.blobs / ("e" * 64 + ".1a2b3c4d.incomplete")).open("wb"):
        assert cache.prove("full")["faults"] == []


def test_a_file_that_is_written_to_while_it_is_read_is_not_done(cache: Cache) -> None:
    files = [Wanted("x", 4, hashlib.sha256(b"1234").hexdigest(), True)]
    path = cache.folder / "x"
    path.write_bytes(b"1234")
    proof = Proof(files, {"x": Found(str(path), path.stat())}, _no_stamps(cache), "full", keeps_stamps=False)
    os.utime(path, ns=(1, 1))  # the same bytes, and another moment: nobody knows which of them were read
    proof.hash(1, lambda _: None, keep_cached=True)
    assert [fault.kind for fault in proof.faults()] == ["changed"]


def _no_stamps(cache: Cache) -> Stamps:
    return Stamps(Repository.at(str(cache.repository), "0" * 40))


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
        # What a quick look reads itself, and nothing more.
        assert run("hashing", {**cache.args(level="quick"), "manifest": other}).result["proved"] == 16

    def test_that_cannot_be_kept_stop_a_proof_before_it_reads_anything(self, cache: Cache) -> None:
        (cache.repository / ".k3deploy").write_text("in the way")
        ran = run("hashing", cache.args(level="full"))
        assert ran.error["what"] == "what was proved of the weights cannot be kept"
        assert ran.progress == []

    def test_that_cannot_be_kept_are_done_without_where_that_is_said(self, cache: Cache) -> None:
        (cache.repository / ".k3deploy").write_text("in the way")
        result = cache.prove("full", may_forget=True)
        assert (result["hashed"], result["proved"], result["faults"]) == (29, 29, [])
        assert result["forgotten"].startswith("what was proved of the weights cannot be kept: ")

    def test_say_since_when_a_file_is_known(self, cache: Cache) -> None:
        cache.prove()
        (stamp,) = (cache.repository / ".k3deploy").iterdir()
        body = json.loads(stamp.read_text())
        body["files"][ONE]["at"], body["files"][TWO]["at"] = 1_785_222_000.0, 1_785_000_000.0
        stamp.write_text(json.dumps(body))
        cache.blob(TWO).touch()
        again = cache.prove()
        assert (again["hashed"], again["known"], again["known_at"]) == (1, 28, 1_785_222_000.0)

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
        assert _kinds(result) == {(ONE, "unreadable")}
        # The next fetch knows it, and takes it anew.
        assert {file["path"] for file in cache.ask()["missing"]} == {ONE}


def _as_nobody(cache: Cache) -> Any:
    user: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    return finish(start("hashing", cache.args(level="full"), (), "/usr/bin/python3", **user)).result


@pytest.mark.parametrize(
    "body",
    ["[]", "null", '{"schema":2}', '{"schema":2,"files":[],"structure":null}', "[" * 100_000, "\xff"]
    + [
        json.dumps({"schema": 2, "files": {ONE: stamp}, "structure": None})
        for stamp in ({}, {"identity": 1, "digest": "a", "at": 1, "mismatches": 0}, 5)
    ],
)
def test_of_damaged_stamps_none_is_believed(cache: Cache, body: str) -> None:
    stamps = cache.repository / ".k3deploy" / f"{cache.manifest['commit']}.json"
    stamps.parent.mkdir()
    stamps.write_bytes(body.encode("latin-1"))
    assert cache.ask()["proved"] == 0
    proved = cache.prove()
    assert (proved["faults"], proved["hashed"]) == ([], 29)


def test_a_proof_of_an_empty_disk_leaves_it_empty(world: World, tmp_path: Path) -> None:
    empty = empty_cache(world, tmp_path / "node")
    empty.hf_home.mkdir()
    assert len(empty.prove("full")["faults"]) == 29
    assert list(empty.hf_home.iterdir()) == []


def test_a_stamp_without_a_digest_is_no_verdict(cache: Cache) -> None:
    cache.prove()
    stamps = cache.repository / ".k3deploy" / f"{cache.manifest['commit']}.json"
    body = json.loads(stamps.read_text())
    body["files"][ONE]["digest"] = None
    stamps.write_text(json.dumps(body))
    assert cache.ask()["missing"] == []


def test_a_reference_that_cannot_be_read_names_nothing(cache: Cache) -> None:
    cache.repository.joinpath("refs", "main").mkdir(parents=True)
    assert (cache.prove("quick")["main_commit"], cache.ask()["main_commit"]) == (None, None)
    cache.repository.joinpath("refs", "main").rmdir()
    cache.repository.joinpath("refs", "main").write_bytes(b"\xff\xfe")
    assert cache.ask()["main_commit"] == "\ufffd\ufffd"


@pytest.mark.parametrize("folder", ["blobs", "snapshots"])
def test_a_file_in_the_place_of_a_folder_leaves_no_file(cache: Cache, folder: str) -> None:
    shutil.rmtree(cache.repository / folder)
    (cache.repository / folder).write_text("x")
    assert len(cache.ask()["missing"]) == 29
    assert {kind for _, kind in _kinds(cache.prove("quick"))} <= {"missing", "dangling"}
