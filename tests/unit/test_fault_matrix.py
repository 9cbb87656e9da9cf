"""Every way in which weights can be wrong: the level that finds it, its exit code, and a repair of nothing else.

Most rows pass a check of names and counts, several pass `hf cache verify`, and most survive a second `hf download`
(measured by mutating a real cache). Each is repaired along both roads: by `verify-shards --local --repair` with the
Hub's client, and by the programs that a run's fetch and proof are on a node.
"""

import ctypes
import io
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

from k3deploy.cli.app import run
from tests.lab.hub import Hub
from tests.unit.remote_program import finish, start
from tests.unit.weights_world import REPO, Cache, World, empty_cache, serving, world

__all__ = ["world"]

ONE = "model-00001-of-000012.safetensors"
TWO = "model-00002-of-000012.safetensors"
INDEX = "model.safetensors.index.json"
OTHER = "0" * 40
CODE = ("tiktoken.model", "tokenization_kimi.py", "modeling_kimi_k3.py")


def _truncate(cache: Cache) -> None:
    os.truncate(cache.blob(ONE), 640)


def _empty(cache: Cache) -> None:
    os.truncate(cache.blob(ONE), 0)


def _flip(at: Callable[[int], int]) -> Callable[[Cache], None]:
    """One bit of the first shard, at a place that its size decides."""

    def make(cache: Cache) -> None:
        place = at(cache.blob(ONE).stat().st_size)
        with cache.blob(ONE).open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))

    return make


def _first_data_byte(cache: Cache) -> int:
    with cache.blob(ONE).open("rb") as file:
        return int(8 + struct.unpack("<Q", file.read(8))[0])


def _flip_start(cache: Cache) -> None:
    _flip(lambda _: _first_data_byte(cache))(cache)


def _flip_small(cache: Cache) -> None:
    text = cache.blob("config.json").read_text()
    cache.blob("config.json").write_text(text.replace('"num_experts": 896', '"num_experts": 895'))


def _link_to_another(cache: Cache) -> None:
    cache.link(ONE).unlink()
    cache.link(ONE).symlink_to(cache.link(TWO).readlink())


def _blob_is_another(cache: Cache) -> None:
    shutil.copyfile(cache.blob(TWO), cache.blob(ONE))


def _wrong_header(cache: Cache) -> None:
    with cache.blob(ONE).open("r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        file.seek(0)
        file.write(struct.pack("<Q", length + 8))


def _index_names_absent(cache: Cache) -> None:
    text = cache.blob(INDEX).read_text()
    # The same length, so that the size says nothing.
    cache.blob(INDEX).write_text(text.replace("model-00012-of-000012", "model-00013-of-000012"))


def _no_code(cache: Cache) -> None:
    for name in CODE:
        cache.link(name).unlink()
        cache.blob(name).unlink()


def _dangling(cache: Cache) -> None:
    cache.blob(ONE).unlink()


def _no_link(cache: Cache) -> None:
    cache.link(ONE).unlink()


def _link_leaves(cache: Cache) -> None:
    outside = cache.folder / cache.blob(ONE).name
    shutil.move(cache.blob(ONE), outside)
    cache.link(ONE).unlink()
    cache.link(ONE).symlink_to(outside)


def _folder_in_place(cache: Cache) -> None:
    cache.blob(ONE).unlink()
    cache.blob(ONE).mkdir()


def _other_snapshot_is_whole(cache: Cache) -> None:
    shutil.copytree(cache.snapshot, cache.snapshot.parent / OTHER, symlinks=True)
    cache.link(TWO).unlink()
    cache.blob(TWO).unlink()


def _other_snapshot_is_named(cache: Cache) -> None:
    shutil.copytree(cache.snapshot, cache.snapshot.parent / OTHER, symlinks=True)
    (cache.repository / "refs" / "main").write_text(OTHER)


def _no_permission(cache: Cache) -> None:
    cache.blob(ONE).chmod(0)


@dataclass(frozen=True)
class Fault:
    """`quick`, `full`: {path: kinds} found at that level. `fetched`: the files that its repair asks the Hub for."""

    name: str
    make: Callable[[Cache], None]
    quick: dict[str, str]
    full: dict[str, str]
    verdict: str
    fetched: set[str]


def _seen(
    name: str,
    make: Callable[[Cache], None],
    kind: str,
    verdict: str = "CORRUPT",
    *,
    path: str = ONE,
    fetched: bool = True,
) -> Fault:
    """One fault in one file that needs no hashing to be found."""
    return Fault(name, make, {path: kind}, {path: kind}, verdict, {path} if fetched else set())


def _read(name: str, make: Callable[[Cache], None], quick: str = "") -> Fault:
    """One fault in the first shard's bytes; `quick`: what its head shows of it."""
    kinds = f"{quick} digest".strip()
    return Fault(name, make, {ONE: quick} if quick else {}, {ONE: kinds}, "CORRUPT", {ONE})


FAULTS = [
    _seen("short blob", _truncate, "size", "INCOMPLETE"),
    _seen("empty blob", _empty, "size", "INCOMPLETE"),
    _read("bit flip at the start", _flip_start),
    _read("bit flip in the middle", _flip(lambda size: size // 2)),
    _read("bit flip at the end", _flip(lambda size: size - 1)),
    _seen("bit flip in a small file", _flip_small, "digest", path="config.json"),
    _seen("link to another blob", _link_to_another, "wrong-link", fetched=False),
    _read("bytes of another shard", _blob_is_another, "tensors"),
    _seen("dangling link", _dangling, "dangling", "INCOMPLETE"),
    _seen("no link", _no_link, "missing", "INCOMPLETE", fetched=False),
    _seen("link out of the cache", _link_leaves, "outside"),
    _seen("folder in place of the blob", _folder_in_place, "not-a-file"),
    _read("wrong header length", _wrong_header, "header"),
    _seen("index names an absent shard", _index_names_absent, "index digest", path=INDEX),
    Fault(
        "no tokenizer and no code",
        _no_code,
        dict.fromkeys(CODE, "missing"),
        dict.fromkeys(CODE, "missing"),
        "INCOMPLETE",
        set(CODE),
    ),
    _seen("another snapshot is whole, ours is not", _other_snapshot_is_whole, "missing", "INCOMPLETE", path=TWO),
    _seen(
        "another snapshot is the named one",
        _other_snapshot_is_named,
        "ref",
        "INCOMPLETE",
        path="refs/main",
        fetched=False,
    ),
]
UNREADABLE = _seen("unreadable file", _no_permission, "unreadable")


@pytest.fixture
def hub(world: World) -> Iterator[Hub]:
    with serving(world) as hub:
        yield hub


@pytest.fixture
def cache(world: World, tmp_path: Path) -> Cache:
    cache = empty_cache(world, tmp_path / "node").fill()
    (cache.repository / "refs").mkdir()
    (cache.repository / "refs" / "main").write_text(cache.manifest["commit"])
    (tmp_path / "manifest.json").write_text(json.dumps(cache.manifest))
    return cache


@dataclass(frozen=True)
class Shards:
    """`verify-shards --local` as it is typed."""

    cache: Cache
    hub: Hub

    def __call__(self, *words: str, code: int) -> dict[str, Any]:
        said = io.StringIO()
        with redirect_stdout(said):
            ended = run(["verify-shards", *self._where, *words])
        assert ended == code, said.getvalue()
        document: dict[str, Any] = json.loads(said.getvalue())
        return document

    def like_everybody(self, *words: str, code: int) -> dict[str, Any]:
        """As somebody whom permissions stop."""
        done = self._run(["k3deploy", "verify-shards", *self._where, *words], preexec_fn=_lose_powers)
        assert done.returncode == code, (done.stdout, done.stderr)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def hf(self, *words: str) -> None:
        """The Hub's own command line tool, which must not complain."""
        done = self._run(["huggingface_hub.cli.hf", *words])
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def _where(self) -> tuple[str, ...]:
        manifest = str(self.cache.folder.parent / "manifest.json")
        return ("--local", str(self.cache.hf_home), "--manifest", manifest, "--output", "json")

    def _run(self, argv: list[str], **popen: Any) -> "subprocess.CompletedProcess[str]":
        environment = {name: os.environ[name] for name in ("HF_ENDPOINT", "HOME", "PATH")}
        return subprocess.run(
            [sys.executable, "-m", *argv],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**environment, "HF_HUB_DISABLE_UPDATE_CHECK": "1"},
            **popen,
        )


_PR_CAPBSET_DROP = 24
_READS_ALL = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def _lose_powers() -> None:
    """What is started next may read no more than its user's permissions say, root's included."""
    for capability in _READS_ALL if os.geteuid() == 0 else ():
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.fixture
def shards(cache: Cache, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Shards:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_address[1]}")
    monkeypatch.setenv("HOME", str(cache.folder))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return Shards(cache, hub)


def _kinds(document: Any) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for fault in document["nodes"][0]["repositories"][0]["faults"]:
        kinds[fault["path"]] = f"{kinds.get(fault['path'], '')} {fault['kind']}".strip()
    return kinds


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_mended_here(cache: Cache, shards: Shards, fault: Fault) -> None:
    fault.make(cache)
    _is_found_and_mended(shards.hub, shards, fault)
    _is_as_the_client_wants_it(cache, shards)


def test_a_file_that_may_not_be_read_is_found_and_mended(cache: Cache, shards: Shards) -> None:
    _no_permission(cache)
    _is_found_and_mended(shards.hub, shards.like_everybody, UNREADABLE)
    _is_as_the_client_wants_it(cache, shards)


def _is_found_and_mended(hub: Hub, look: Callable[..., dict[str, Any]], fault: Fault) -> None:
    quick = look("--quick", code=4 if fault.quick else 0)
    assert _kinds(quick) == fault.quick
    assert quick["verdict"] == (fault.verdict if fault.quick else "QUICK-OK")
    full = look(code=4)
    assert _kinds(full) == fault.full
    assert full["verdict"] == fault.verdict
    assert hub.stats.document()["requests"] == 0

    mended = look("--repair", code=0)
    assert mended["verdict"] == "COMPLETE"
    assert [line.partition(":")[0] for line in mended["repaired"]] == ["local"]
    assert set(hub.stats.document()["files"]) == fault.fetched


def _is_as_the_client_wants_it(cache: Cache, shards: Shards) -> None:
    hub_folder, commit = str(cache.hf_home / "hub"), str(cache.manifest["commit"])
    shards.hf(
        *("cache", "verify", REPO, "--revision", commit, "--cache-dir", hub_folder),
        *("--fail-on-missing-files", "--fail-on-extra-files"),
    )
    opened = Path(snapshot_download(REPO, revision=commit, cache_dir=hub_folder, local_files_only=True))
    assert opened == cache.snapshot
    for file in cache.manifest["files"]:
        assert (opened / file["path"]).read_bytes() == (cache.world.source / file["path"]).read_bytes()


def test_a_node_with_another_revision_has_none_of_this_one(cache: Cache, shards: Shards) -> None:
    cache.snapshot.rename(cache.snapshot.parent / OTHER)
    for words in (("--quick",), ()):
        found = shards(*words, code=4)
        assert set(_kinds(found).values()) == {"missing"}
        assert len(_kinds(found)) == 29
        assert (found["verdict"], found["same_commit"]) == ("INCOMPLETE", False)
        assert found["nodes"][0]["repositories"][0]["held_commit"] == OTHER
    assert shards("--repair", code=0)["same_commit"]
    # The bytes are there, under the names that their digests give them.
    assert shards.hub.stats.document()["requests"] == 0
    _is_as_the_client_wants_it(cache, shards)


def test_an_orphan_costs_space_alone_and_goes_with_a_repair(cache: Cache, shards: Shards) -> None:
    orphan = cache.blobs / (cache.blob(ONE).name + ".1a2b3c4d.incomplete")
    orphan.write_bytes(b"x" * 5000)
    for words in (("--quick",), ()):
        (note,) = shards(*words, code=0)["nodes"][0]["repositories"][0]["notes"]
        assert note == f"{orphan.name}: 5.00 kB, left by a killed download"
    mended = shards("--repair", code=0)
    assert mended["repaired"] == ["local: 1 leftover of killed downloads"]
    assert mended["nodes"][0]["repositories"][0]["notes"] == []
    assert not orphan.exists()
    assert shards.hub.stats.document()["requests"] == 0


ON_NODES = [fault for fault in (*FAULTS, UNREADABLE) if fault.make is not _other_snapshot_is_named]


@pytest.mark.parametrize("fault", ON_NODES, ids=lambda fault: fault.name)
def test_a_fault_is_mended_by_a_runs_fetch_and_proof(cache: Cache, hub: Hub, fault: Fault) -> None:
    fault.make(cache)
    args = cache.fetch_args(hub)
    _on_node("hashing", cache.args(level="resume"))
    _on_node("fetch", args)
    assert set(hub.stats.document()["files"]) == fault.fetched
    assert _on_node("hashing", cache.args(level="resume"))["faults"] == []


def _on_node(entry: str, args: dict[str, Any]) -> Any:
    return finish(start(entry, args, preexec_fn=_lose_powers)).result
