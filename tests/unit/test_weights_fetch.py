"""Fetching with the real Hub client from a Hub of the lab's kind, through every trouble that one can make."""

import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.hub import Hub
from tests.lab.hub_files import Repositories
from tests.unit.remote_program import finish, let_others_in, run, start, until
from tests.unit.weights_world import REPO, Cache, World, empty_cache, manifest_of, serving, world

__all__ = ["world"]

ONE = "model-00001-of-000012.safetensors"
TWO = "model-00002-of-000012.safetensors"
# The lab's shards are small, so they share one client process with four threads.


@pytest.fixture
def hub(world: World) -> Iterator[Hub]:
    with serving(world) as hub:
        yield hub


@pytest.fixture
def cache(world: World, tmp_path: Path) -> Cache:
    return empty_cache(world, tmp_path)


def _is_whole(cache: Cache) -> bool:
    for file in cache.manifest["files"]:
        path = file["path"]
        if cache.link(path).read_bytes() != (cache.world.source / path).read_bytes():
            return False
    return not [path for path in cache.blobs.iterdir() if path.name.endswith(".incomplete")]


def _got(hub: Hub) -> dict[str, int]:
    """How often each file was asked for with GET or HEAD."""
    files: dict[str, dict[str, int]] = hub.stats.document()["files"]
    return {name: counts["requests"] for name, counts in files.items()}


def test_everything_is_fetched_and_is_what_the_hub_has(cache: Cache, hub: Hub) -> None:
    ran = cache.fetch(hub)
    assert ran.result["fetched"] == 29
    assert ran.result["fetched_bytes"] == 1258977
    assert _is_whole(cache)
    assert cache.prove("full")["faults"] == []
    last = ran.progress[-1]
    assert (last["done"], last["total"]) == (1258977, 1258977)
    assert (last["files_done"], last["files_total"]) == (29, 29)
    assert (last["shards_done"], last["shards_total"]) == (12, 12)


def test_a_second_fetch_asks_the_hub_for_nothing(cache: Cache, hub: Hub) -> None:
    cache.fetch(hub)
    hub.stats.reset()
    assert cache.fetch(hub).result["fetched"] == 0
    assert hub.stats.document()["requests"] == 0


def test_each_file_costs_two_requests_and_nothing_else_is_asked(cache: Cache, hub: Hub) -> None:
    cache.fetch(hub)
    assert set(_got(hub).values()) == {2}
    assert hub.stats.document()["requests"] == 2 * 29


def test_a_missing_link_is_made_without_the_hub(cache: Cache, hub: Hub) -> None:
    cache.fill()
    cache.link(ONE).unlink()
    result = cache.fetch(hub).result
    assert (result["fetched"], result["linked"]) == (0, 1)
    assert hub.stats.document()["requests"] == 0
    assert _is_whole(cache)


@pytest.mark.parametrize("size", [0, 640])
def test_a_short_blob_is_moved_aside_and_only_it_is_fetched(cache: Cache, hub: Hub, size: int) -> None:
    cache.fill()
    os.truncate(cache.blob(ONE), size)
    result = cache.fetch(hub).result
    assert (result["fetched"], result["quarantined"]) == (1, [ONE])
    assert list(_got(hub)) == [ONE]
    assert _is_whole(cache)
    assert cache.blob(ONE).with_name(cache.blob(ONE).name + ".bad").stat().st_size == size


def test_a_blob_that_was_hashed_and_found_wrong_is_fetched_anew(cache: Cache, hub: Hub) -> None:
    cache.fill()
    data = bytearray(cache.blob(ONE).read_bytes())
    data[-1] ^= 1
    cache.blob(ONE).write_bytes(data)
    assert cache.fetch(hub).result["fetched"] == 0  # nobody has hashed it yet
    assert [fault["path"] for fault in cache.prove()["faults"]] == [ONE]
    assert cache.fetch(hub).result["quarantined"] == [ONE]
    assert list(_got(hub)) == [ONE]
    assert cache.prove()["faults"] == []


def test_a_link_to_another_blob_is_put_right_without_the_hub(cache: Cache, hub: Hub) -> None:
    cache.fill()
    cache.link(ONE).unlink()
    cache.link(ONE).symlink_to(cache.link(TWO).readlink())
    assert cache.fetch(hub).result["linked"] == 1
    assert hub.stats.document()["requests"] == 0
    assert _is_whole(cache)


def test_leftovers_of_killed_downloads_are_removed_but_not_those_in_use(cache: Cache, hub: Hub) -> None:
    cache.fill()
    stale = cache.blobs / f"{cache.blob(ONE).name}.00000001.incomplete"
    used = cache.blobs / f"{cache.blob(TWO).name}.00000002.incomplete"
    stale.write_bytes(b"x")
    with used.open("wb"):
        assert cache.fetch(hub).result["removed_partials"] == 1
        assert (stale.exists(), used.exists()) == (False, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_partial_file_of_another_user_gets_time(cache: Cache, hub: Hub) -> None:
    cache.fill()
    let_others_in(cache.folder)
    for folder in (cache.hf_home / "hub", cache.blobs, cache.snapshot):
        folder.chmod(0o777)
    args = cache.fetch_args(hub)
    partial = cache.blobs / f"{cache.blob(ONE).name}.00000001.incomplete"
    partial.write_bytes(b"x")
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
    assert finish(start("fetch", args, (), "/usr/bin/python3", **nobody)).result["removed_partials"] == 0
    os.utime(partial, (0, 0))
    assert finish(start("fetch", args, (), "/usr/bin/python3", **nobody)).result["removed_partials"] == 1


def test_trouble_that_passes_is_survived(cache: Cache, hub: Hub) -> None:
    shards = cache.world.shards
    rules = [
        {"kind": "status", "code": 503, "match": shards[0], "times": 2},
        {"kind": "status", "code": 503, "match": shards[1], "method": "GET", "times": 2},
        {"kind": "status", "code": 429, "retry_after": 0, "match": shards[2], "times": 2},
        {"kind": "cut", "after_bytes": 1000, "match": shards[3], "times": 1},
        {"kind": "cut", "after_bytes": 1000, "reset": True, "match": shards[4], "times": 1},
        {"kind": "drop", "match": shards[5], "times": 1},
    ]
    hub.faults.replace({"rules": rules})
    assert cache.fetch(hub).result["fetched"] == 29
    assert _is_whole(cache)
    assert {rule["times"] for rule in hub.faults.document()["rules"]} == {0}  # each one struck


def test_a_503_on_a_file_is_tried_again_by_us(cache: Cache, hub: Hub) -> None:
    # The client (2.4) gives up on 5xx over plain HTTP at once.
    hub.faults.replace({"rules": [{"kind": "status", "code": 503, "match": ONE, "method": "GET", "times": 3}]})
    ran = cache.fetch(hub)
    assert ran.result["retries"] == 3
    assert f"{ONE}: HfHubHTTPError" in ran.stderr


def test_trouble_that_stays_ends_the_fetch_and_keeps_what_came(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "status", "code": 503, "match": ONE, "method": "GET"}]})
    error = cache.fetch(hub, wait_base_s=0.001).error
    assert error["what"] == f"cannot fetch {ONE} (8 tries)"
    assert "503" in error["why"]
    assert error["context"] == {"path": ONE, "kind": "hub"}
    hub.faults.replace({})
    assert cache.fetch(hub).result["fetched"] == 1


@pytest.mark.parametrize(
    ("switches", "token", "text"),
    [
        ({"gated": True}, None, "GatedRepoError"),
        ({"gated": True}, "hf_noaccess", "GatedRepoError"),
        ({"require_token": True}, None, "RepositoryNotFoundError"),
        ({}, "hf_bad", "Invalid credentials"),
    ],
)
def test_no_access_is_said_at_once(
    cache: Cache, hub: Hub, switches: dict[str, Any], token: str | None, text: str
) -> None:
    hub.faults.replace(switches)
    error = cache.fetch(hub, secrets={"hf_token": token} if token else {}).error
    assert error["what"].startswith("cannot fetch ")
    assert text in error["why"]
    assert "HF_TOKEN" in error["fix"]
    assert max(_got(hub).values()) == 1  # not tried again


def test_a_gated_repository_is_fetched_with_a_token_that_nobody_can_see(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"gated": True, "rules": [{"kind": "slow", "bytes_per_s": 20_000, "match": ONE}]})
    token = "hf_this-one-may-read"
    process = start("fetch", cache.fetch_args(hub, secrets={"hf_token": token}))
    until(lambda: list(cache.blobs.glob("*.incomplete")), "the slow file is on its way")
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _parent(folder) == process.pid:
            assert token.encode() not in (folder / "environ").read_bytes()
            assert token.encode() not in (folder / "cmdline").read_bytes()
    hub.faults.replace({"gated": True})
    ran = finish(process)
    assert ran.result["fetched"] == 29
    assert token not in ran.stderr + json.dumps(list(ran.lines))
    for path in (cache.folder / "scratch").iterdir():
        assert token not in path.read_text()


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_revision_that_the_hub_lost_is_said_at_once(cache: Cache, hub: Hub) -> None:
    cache = Cache(cache.world, cache.folder, {**cache.manifest, "commit": "d" * 40})
    error = cache.fetch(hub).error
    assert "RevisionNotFoundError" in error["why"]
    assert "model.revision" in error["fix"]


def test_a_transfer_that_stands_still_is_killed_and_taken_up_again(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "stall", "seconds": 40, "match": ONE, "method": "GET", "times": 1}]})
    ran = cache.fetch(hub, stall_s=3.0)
    assert ran.result["stalls"] >= 1
    assert f"{ONE}: no byte for 3 s, taken up again with Xet" in ran.stderr
    assert _is_whole(cache)


def test_a_transfer_that_stands_still_twice_goes_without_xet_and_the_third_time_is_the_end(
    cache: Cache, hub: Hub
) -> None:
    hub.faults.replace({"rules": [{"kind": "stall", "seconds": 40, "match": ONE, "method": "GET"}]})
    ran = cache.fetch(hub, stall_s=3.0)
    assert f"{ONE}: no byte for 3 s, taken up again without Xet" in ran.stderr
    assert ran.error["what"] == f"{ONE} stood still for 3 s, 3 times, with Xet and without"
    # The others are there, and nothing half-done is.
    assert len(cache.ask()["missing"]) == 1
    assert cache.ask()["partials"] == []


def test_a_slow_transfer_is_not_a_stall(tmp_path: Path) -> None:
    # The client writes pieces of 10 MiB; at this rate one comes every 1.3 s, and all of them take longer than a stall.
    folder = tmp_path / "root" / REPO
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(30 << 20))
    commit = Repositories(tmp_path / "root").commit(REPO)
    world = World(tmp_path / "root", folder, manifest_of(folder, commit))
    cache = empty_cache(world, tmp_path / "node")
    with serving(world) as hub:
        hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 8_000_000}]})
        result = cache.fetch(hub, stall_s=3.5).result
    assert (result["fetched"], result["stalls"]) == (1, 0)


def test_waiting_as_the_hub_asked_is_not_a_stall(cache: Cache, hub: Hub) -> None:
    rule = {"kind": "status", "code": 429, "retry_after": 4, "match": ONE, "method": "GET", "times": 1}
    hub.faults.replace({"rules": [rule]})
    ran = cache.fetch(hub, stall_s=3.0)
    assert ran.result["stalls"] == 0
    assert "rate limit (429, without a token, whose limits are lower): waiting 4 s" in ran.stderr


def test_what_was_fetched_is_proved_and_nobody_has_to_read_it_again(cache: Cache, hub: Hub) -> None:
    cache.fetch(hub)
    proof = cache.prove()
    assert (proof["proved"], proof["hashed"], proof["faults"]) == (29, 0, [])


def test_wrong_bytes_of_the_right_length_are_moved_aside_and_fetched_anew(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "corrupt", "match": ONE, "times": 1}]})
    ran = cache.fetch(hub)
    assert f"{ONE}: its digest is " in ran.stderr
    assert ran.result["retries"] == 1
    assert hub.stats.document()["files"][ONE]["bytes"] == 2 * cache.world.file(ONE)["size"]
    assert cache.blob(ONE).with_name(cache.blob(ONE).name + ".bad").exists()
    assert cache.prove()["faults"] == []


def test_bytes_that_stay_wrong_end_the_fetch_after_three_tries_with_nothing_wrong_left(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "corrupt", "match": ONE}]})
    error = cache.fetch(hub).error
    assert error["what"] == f"cannot fetch {ONE} (3 tries)"
    assert f"wanted {cache.world.file(ONE)['sha256']}" in error["why"]
    assert "memory or disk" in error["fix"]
    assert not cache.blob(ONE).exists()
    assert not cache.link(ONE).is_symlink()
    hub.faults.replace({})
    hub.stats.reset()
    assert cache.fetch(hub).result["fetched"] >= 1
    proof = cache.prove()
    assert (proof["faults"], proof["mismatches"]) == ([], {ONE: 3})


def test_killed_half_way_it_goes_on_where_it_was(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 50_000}]})
    process = start("fetch", cache.fetch_args(hub))
    until(lambda: len(_finished(cache)) >= 4 and list(cache.blobs.glob("*.incomplete")), "half of it is there")
    workers = [int(folder.name) for folder in Path("/proc").iterdir() if _is_child(folder, process.pid)]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not any(_is_alive(pid) for pid in workers), "its workers ended with it")
    kept = _finished(cache)
    hub.faults.replace({})
    hub.stats.reset()
    result = cache.fetch(hub).result
    assert result["fetched"] == 29 - len(kept)
    assert result["removed_partials"] > 0
    assert {cache.blob(name) for name in _got(hub)}.isdisjoint(kept)
    assert _is_whole(cache)


def _finished(cache: Cache) -> set[Path]:
    return {path for path in cache.blobs.glob("*") if not path.name.endswith(".incomplete")}


def _is_child(folder: Path, pid: int) -> bool:
    return folder.name.isdigit() and _parent(folder) == pid


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_stopped_half_way_it_leaves_nothing_half_done(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 50_000}]})
    args = {"id": "fetch-test", "dir": str(cache.folder / "job"), "entry": "fetch", "args": cache.fetch_args(hub)}
    run("job_start", args, ("fetch",))
    until(lambda: list(cache.blobs.glob("*.incomplete")), "it is under way")
    assert run("job_stop", {"id": "fetch-test", "dir": args["dir"], "grace_s": 20}).result["was_running"]
    assert not list(cache.blobs.glob("*.incomplete"))


def test_too_little_space_is_said_before_a_byte_is_fetched(cache: Cache, hub: Hub) -> None:
    free = shutil.disk_usage(cache.folder).free
    error = cache.fetch(hub, floor_bytes=free + 10**12).error
    assert error["what"] == f"not enough space for the weights in {cache.hf_home}/hub"
    assert error["context"]["kind"] == "disk"
    assert "29 files are missing" in error["why"]
    assert hub.stats.document()["requests"] == 0


def test_a_disk_that_fills_up_ends_the_fetch_with_nothing_half_done(cache: Cache, hub: Hub) -> None:
    # A limit on the size of a file stands for a full disk: a write beyond 90 kB fails, in the client too.
    def lower() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))

    error = finish(start("fetch", cache.fetch_args(hub), preexec_fn=lower)).error
    assert "File too large" in error["why"]
    assert error["fix"].startswith("free space on the disk")
    assert cache.ask()["partials"] == []
    assert {file["kind"] for file in cache.ask()["missing"]} == {"missing"}
    assert cache.fetch(hub).result["fetched"] > 0
    assert _is_whole(cache)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_cache_of_another_user_is_refused_with_the_command_that_mends_it(cache: Cache, hub: Hub) -> None:
    cache.fill()
    let_others_in(cache.folder)
    error = finish(
        start("fetch", cache.fetch_args(hub), (), "/usr/bin/python3", user=65534, group=65534, extra_groups=[])
    ).error
    assert error["what"] == f"cannot write to the Hugging Face cache in {cache.hf_home}"
    assert error["fix"].startswith(f"sudo chown -R $(id -un) {cache.hf_home}")


def test_a_client_that_does_not_start_is_said(cache: Cache, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "broken" / "huggingface_hub").mkdir(parents=True)
    (tmp_path / "broken" / "huggingface_hub" / "__init__.py").write_text("raise RuntimeError('no luck')")
    error = cache.fetch(hub, client=str(tmp_path / "broken")).error
    assert error["what"] == "the Hub's client does not start on this node"
    assert "no luck" in error["why"]


def test_two_fetches_of_one_repository_do_not_fight(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 50_000, "match": ONE}]})
    process = start("fetch", cache.fetch_args(hub))
    until(lambda: list(cache.blobs.glob("*.incomplete")), "it is under way")
    assert "is running on this node" in cache.fetch(hub).error["what"]
    hub.faults.replace({})
    assert finish(process).result["fetched"] == 29
