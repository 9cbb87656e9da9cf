"""Fetching from a store by URLs that were made for this fetch: resumed, proved while they come in, never shown."""

import json
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote.receive_stream import Unavailable, url_stream
from tests.lab.hub import Hub
from tests.lab.hub_files import Repositories
from tests.unit.remote_program import Ran, finish, run, start, until
from tests.unit.weights_world import REPO, Cache, World, empty_cache, manifest_of, serving, world

__all__ = ["world"]

ONE = "model-00001-of-000012.safetensors"
SIGNATURE = "X-Signature=not-for-logs"


@pytest.fixture
def hub(world: World, tmp_path: Path) -> Iterator[Hub]:
    with serving(world, log=tmp_path / "hub.log") as hub:
        yield hub


@pytest.fixture
def cache(world: World, tmp_path: Path) -> Cache:
    return empty_cache(world, tmp_path)


def _args(cache: Cache, hub: Hub, **more: Any) -> dict[str, Any]:
    base = f"http://127.0.0.1:{hub.server_address[1]}/{REPO}/resolve/{cache.manifest['commit']}"
    urls = {file["path"]: f"{base}/{file['path']}?{SIGNATURE}" for file in cache.manifest["files"]}
    args = cache.fetch_args(hub, origin="urls", secrets={"urls": json.dumps(urls)}, **more)
    del args["client"]
    return args


def _fetch(cache: Cache, hub: Hub, **more: Any) -> Ran:
    return run("fetch", _args(cache, hub, **more))


def _partial(cache: Cache, path: str) -> Path:
    return cache.blob(path).with_name(cache.blob(path).name + ".k3deploy.incomplete")


def _asked(folder: Path, path: str) -> list[dict[str, Any]]:
    """The hub's requests for one file, in order."""
    entries = [json.loads(line) for line in (folder / "hub.log").read_text().splitlines()]
    return [entry for entry in entries if path in entry["path"]]


def test_everything_comes_in_one_request_each_and_is_proved(cache: Cache, hub: Hub) -> None:
    ran = _fetch(cache, hub)
    assert (ran.result["fetched"], ran.result["hub_bytes"], ran.result["peer_bytes"]) == (29, 1258977, 0)
    assert hub.stats.document()["methods"] == {"GET": 29}
    proof = cache.prove()
    assert (proof["proved"], proof["hashed"], proof["faults"]) == (29, 0, [])
    assert cache.ask()["partials"] == []


def test_a_stream_that_is_cut_goes_on_at_its_end(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "cut", "after_bytes": 40_000, "match": ONE, "times": 1}]})
    assert _fetch(cache, hub).result["retries"] == 1
    assert hub.stats.document()["files"][ONE]["bytes"] == cache.world.file(ONE)["size"]
    assert cache.prove()["faults"] == []


def test_killed_half_way_it_goes_on_at_the_byte_where_it_was(cache: Cache, hub: Hub, tmp_path: Path) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 20_000, "match": ONE}]})
    process = start("fetch", _args(cache, hub))
    until(lambda: _partial(cache, ONE).exists() and _partial(cache, ONE).stat().st_size > 0, "some of it is here")
    process.send_signal(signal.SIGKILL)
    process.communicate()  # its receivers hold stderr too: they are gone
    here = _partial(cache, ONE).stat().st_size
    assert 0 < here < cache.world.file(ONE)["size"]
    hub.faults.replace({})
    assert _fetch(cache, hub).result["removed_partials"] == 0
    assert f"bytes={here}-" in [each["range"] for each in _asked(tmp_path, ONE)]
    assert cache.prove()["faults"] == []


def test_stopped_half_way_it_keeps_its_halves(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 20_000, "match": ONE}]})
    args = {"id": "url-test", "dir": str(cache.folder / "job"), "entry": "fetch", "args": _args(cache, hub)}
    run("job_start", {**args, "secrets": args["args"].pop("secrets")}, ("fetch",))  # type: ignore[attr-defined]
    until(lambda: _partial(cache, ONE).exists() and _partial(cache, ONE).stat().st_size > 0, "some of it is here")
    assert run("job_stop", {"id": "url-test", "dir": args["dir"], "grace_s": 20}).result["was_running"]
    assert _partial(cache, ONE).stat().st_size > 0
    assert SIGNATURE not in "".join(path.read_text() for path in (cache.folder / "job").iterdir())


def test_a_half_that_is_wrong_is_thrown_away_and_the_file_fetched_whole(cache: Cache, hub: Hub) -> None:
    cache.blobs.mkdir(parents=True)
    _partial(cache, ONE).write_bytes(b"x" * 50_000)
    assert _fetch(cache, hub).result["retries"] == 1
    assert hub.stats.document()["files"][ONE]["bytes"] == 2 * cache.world.file(ONE)["size"] - 50_000
    assert cache.prove()["faults"] == []


@pytest.mark.parametrize("more", [1, 100_000])
def test_a_half_that_is_longer_than_the_file_is_not_gone_on_with(cache: Cache, hub: Hub, more: int) -> None:
    cache.blobs.mkdir(parents=True)
    _partial(cache, ONE).write_bytes(bytes(cache.world.file(ONE)["size"] + more))
    assert _fetch(cache, hub).result["retries"] == 0
    assert cache.prove()["faults"] == []


def test_a_half_of_a_file_that_is_whole_is_removed(cache: Cache, hub: Hub) -> None:
    cache.fill()
    _partial(cache, ONE).write_bytes(b"x")
    assert _fetch(cache, hub).result["removed_partials"] == 1


def test_wrong_bytes_never_become_a_blob(cache: Cache, hub: Hub) -> None:
    hub.faults.replace({"rules": [{"kind": "corrupt", "match": ONE}]})
    error = _fetch(cache, hub).error
    assert error["what"] == f"cannot fetch {ONE} (3 tries)"
    assert not cache.blob(ONE).exists()
    assert not _partial(cache, ONE).exists()
    assert not cache.link(ONE).is_symlink()


def test_trouble_that_passes_is_survived_and_a_wish_for_patience_heard(cache: Cache, hub: Hub) -> None:
    shards = cache.world.shards
    hub.faults.replace(
        {
            "rules": [
                {"kind": "status", "code": 503, "match": shards[0], "times": 2},
                {"kind": "status", "code": 429, "retry_after": 1, "match": shards[1], "times": 1},
                {"kind": "drop", "match": shards[2], "times": 1},
            ]
        }
    )
    ran = _fetch(cache, hub)
    assert ran.result["retries"] == 4
    assert f"{shards[1]}: HTTP status 429; again in 1 s" in ran.stderr
    assert {rule["times"] for rule in hub.faults.document()["rules"]} == {0}


@pytest.mark.parametrize(("code", "fix"), [(403, "its URLs expire"), (404, "where weights.mirror in the profile says")])
def test_a_store_that_refuses_is_believed_at_once(cache: Cache, hub: Hub, code: int, fix: str) -> None:
    hub.faults.replace({"rules": [{"kind": "status", "code": code, "match": ONE}]})
    ran = _fetch(cache, hub)
    assert ran.error["what"] == f"cannot fetch {ONE}"
    assert ran.error["why"] == f"HTTP status {code}"
    assert fix in ran.error["fix"]
    assert SIGNATURE not in ran.stderr + json.dumps(list(ran.lines))


def test_no_url_is_shown_when_nobody_answers(cache: Cache, hub: Hub) -> None:
    args = _args(cache, hub, wait_base_s=0.001)
    hub.server_close()
    ran = finish(start("fetch", args))
    assert "Connection refused" in ran.error["why"]
    assert SIGNATURE not in ran.stderr + json.dumps(list(ran.lines))


@pytest.mark.parametrize("by", ["urls", "client"])
def test_files_of_the_same_content_share_a_blob_and_are_both_proved(tmp_path: Path, by: str) -> None:
    folder = tmp_path / "root" / REPO
    folder.mkdir(parents=True)
    for name in ("a.model", "b.model"):
        (folder / name).write_bytes(b"x" * 300_000)
    for name in ("one.py", "two.py", "three.py"):
        (folder / name).write_bytes(b"")
    manifest = manifest_of(folder, Repositories(tmp_path / "root").commit(REPO))
    cache = empty_cache(World(tmp_path / "root", folder, manifest), tmp_path / "node")
    with serving(cache.world) as hub:
        ran = run("fetch", _args(cache, hub) if by == "urls" else cache.fetch_args(hub))
        assert ran.result["fetched"] == 5
    proof = cache.prove()
    assert (proof["proved"], proof["hashed"], proof["faults"]) == (5, 0, [])
    assert len(list(cache.blobs.iterdir())) == 2


def test_a_disk_that_fills_up_ends_the_fetch_with_nothing_wrong_left(cache: Cache, hub: Hub) -> None:
    # A limit on the size of a file stands for a full disk: a write beyond 90 kB fails.
    def lower() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))

    error = finish(start("fetch", _args(cache, hub), preexec_fn=lower)).error
    assert error["context"]["kind"] == "disk"
    assert {file["kind"] for file in cache.ask()["missing"]} == {"missing"}
    assert _fetch(cache, hub).result["fetched"] > 0
    assert cache.prove()["faults"] == []


def test_an_address_that_cannot_be_asked_for_is_not_quoted() -> None:
    """The standard library's error names the path and all behind it."""
    with pytest.raises(Unavailable) as caught, url_stream(f"http://127.0.0.1:1/a b?{SIGNATURE}", 0):
        pass
    assert caught.value.failure["text"] == "InvalidURL"
