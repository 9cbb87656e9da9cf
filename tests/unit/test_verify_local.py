"""`verify-shards --local` on every layout in which weights lie on a disk, with the list of files from anywhere."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import hf_hub_download

from k3deploy.adapters.hub.client import HuggingFace
from k3deploy.adapters.hub.refetch import Refetch
from k3deploy.adapters.local_program import LocalPrograms
from k3deploy.cli.app import run
from k3deploy.domain import events as ev
from k3deploy.domain.errors import Interrupted
from k3deploy.domain.proof_level import ProofLevel
from k3deploy.domain.weights import Manifest
from k3deploy.flows.verify_local import LocalLook
from k3deploy.testing import FakeCancel, FakeClock, Recorder
from tests.lab.hub import Hub
from tests.unit.weights_world import REPO, Cache, World, empty_cache, serving, world

__all__ = ["world"]

ONE = "model-00001-of-000012.safetensors"
TWO = "model-00002-of-000012.safetensors"


@pytest.fixture
def hub(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(world) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_address[1]}")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.fixture
def cache(world: World, tmp_path: Path) -> Cache:
    return empty_cache(world, tmp_path / "node").fill()


@pytest.fixture
def plain(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.source, tmp_path / "plain"))


class Shards:
    """The command as it is typed, and what it says as JSON."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, path: Path, *words: str, code: int = 0) -> Any:
        ended = run(["verify-shards", "--local", str(path), "--output", "json", *words])
        said = self._capsys.readouterr().out
        assert ended == code, said
        return json.loads(said)


@pytest.fixture
def shards(capsys: pytest.CaptureFixture[str]) -> Shards:
    return Shards(capsys)


def _part(document: Any) -> Any:
    return document["nodes"][0]["repositories"][0]


def _kinds(document: Any) -> dict[str, str]:
    return {fault["path"]: fault["kind"] for fault in _part(document)["faults"]}


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _leave_tree(folder: Path, manifest: dict[str, Any]) -> Path:
    """As the Hub's client leaves it beside what it downloaded."""
    entries = {}
    for file in manifest["files"]:
        entries[file["path"]] = {"size": file["size"], "blob_id": file["blob_id"]}
        if file["sha256"]:
            entries[file["path"]] |= {"lfs_sha256": file["sha256"], "lfs_size": file["size"]}
    tree = folder / "trees" / f"{manifest['commit']}.json"
    tree.parent.mkdir(parents=True)
    tree.write_text(json.dumps({"format_version": 1, "files": entries}))
    return tree


@pytest.mark.parametrize("level", [0, 1, 2, 4], ids=["home", "hub folder", "repository", "snapshot"])
def test_any_folder_of_a_cache_will_do(cache: Cache, hub: Hub, shards: Shards, level: int) -> None:
    place = (cache.hf_home, cache.hf_home / "hub", cache.repository, cache.repository, cache.snapshot)[level]
    found = shards(place)
    assert (found["verdict"], found["manifest_source"]) == ("COMPLETE", "the hub")
    assert (_part(found)["commit"], _part(found)["hashed"]) == (cache.manifest["commit"], 29)


def test_plain_files_are_proved_with_a_list_and_keep_their_stamps_out_of_the_way(
    plain: Path, world: World, hub: Hub, shards: Shards, tmp_path: Path
) -> None:
    (tmp_path / "list.json").write_text(json.dumps(world.manifest))
    words = ("--manifest", str(tmp_path / "list.json"))
    first, second = shards(plain, *words), shards(plain, *words)
    assert (_part(first)["hashed"], _part(second)["hashed"], _part(second)["known"]) == (29, 0, 29)
    assert first["manifest_source"] == str(tmp_path / "list.json")
    assert hub.stats.document()["requests"] == 0
    # The Hub's client looks past this folder, so that its own check finds nothing that is not the repository's.
    repository = {path.name for path in world.source.iterdir()}
    assert {path.name for path in plain.iterdir()} - repository == {".cache"}
    assert [path.name for path in (plain / ".cache").iterdir()] == ["huggingface"]


def test_files_that_the_client_downloaded_say_their_commit(
    world: World, hub: Hub, shards: Shards, tmp_path: Path
) -> None:
    folder = tmp_path / "downloaded"
    for name in ("config.json", ONE):
        hf_hub_download(
            REPO, name, revision=world.manifest["commit"], local_dir=folder, endpoint=os.environ["HF_ENDPOINT"]
        )
    tree = _leave_tree(folder / ".cache" / "huggingface", world.manifest)
    found = shards(folder, "--manifest", str(tree), "--profile", "lab-h100x32", code=4)
    assert len(_kinds(found)) == 27
    assert set(_kinds(found).values()) == {"missing"}


def test_without_the_hub_the_clients_own_list_will_do_and_that_is_said(
    cache: Cache, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    tree = _leave_tree(cache.repository, cache.manifest)
    found = shards(cache.hf_home)
    assert found["manifest_source"] == f"the client's own {tree}, as the hub cannot be reached"
    assert (found["verdict"], _part(found)["hashed"]) == ("COMPLETE", 29)


def test_without_the_hub_and_any_list_nothing_can_be_told(
    cache: Cache, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert shards(cache.hf_home, code=3)["error"]["code"] == "K3-HUB-001"


def test_a_list_that_lies_in_the_cache_needs_no_more_words(cache: Cache, shards: Shards) -> None:
    tree = _leave_tree(cache.repository, cache.manifest)
    assert shards(cache.hf_home, "--manifest", str(tree))["verdict"] == "COMPLETE"


def test_of_several_repositories_one_has_to_be_named(cache: Cache, hub: Hub, shards: Shards) -> None:
    (cache.hf_home / "hub" / "models--lab--other").mkdir()
    error = shards(cache.hf_home, code=1)["error"]
    assert error["what"].endswith("holds 2 repositories")
    assert error["fix"] == f"name one of them: --local {cache.repository}"
    assert shards(cache.repository)["verdict"] == "COMPLETE"


def test_of_several_snapshots_the_named_one_is_meant_and_else_one_has_to_be_named(
    cache: Cache, hub: Hub, shards: Shards
) -> None:
    other = cache.snapshot.parent / ("0" * 40)
    shutil.copytree(cache.snapshot, other, symlinks=True)
    assert "which commit it is of" in shards(cache.repository, code=1)["error"]["what"]
    assert _part(shards(cache.snapshot))["commit"] == cache.manifest["commit"]
    (cache.repository / "refs").mkdir()
    (cache.repository / "refs" / "main").write_text(cache.manifest["commit"])
    found = shards(cache.repository)
    assert found["verdict"] == "COMPLETE"
    assert _part(found)["notes"] == [f"snapshot {'0' * 40}: another commit, which no launch of this run uses"]


def test_a_list_of_another_repository_is_not_taken_for_this_one(cache: Cache, shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps({**cache.manifest, "repo": "lab/other"}))
    error = shards(cache.repository, "--manifest", str(tmp_path / "list.json"), code=1)["error"]
    assert error["what"] == f"{cache.repository} holds {REPO}, and the list of files is of lab/other"


def test_a_renamed_folder_of_a_cache_is_proved_and_not_fetched_into(
    cache: Cache, hub: Hub, shards: Shards, tmp_path: Path
) -> None:
    moved = cache.repository.rename(tmp_path / "kimi")
    (tmp_path / "list.json").write_text(json.dumps(cache.manifest))
    words = ("--manifest", str(tmp_path / "list.json"))
    assert shards(moved, *words)["verdict"] == "COMPLETE"
    error = shards(moved, *words, "--repair", code=1)["error"]
    assert error["fix"].startswith(f"rename it to {cache.repository.name}")


def test_ctrl_c_keeps_what_was_hashed(cache: Cache) -> None:
    recorder = Recorder()
    manifest = Manifest.from_dict(cache.manifest)
    look = LocalLook(
        where={"folder": str(cache.repository)},
        manifest=manifest,
        source="the hub",
        by_name=False,
        again="-",
        programs=LocalPrograms(),
        refetch=Refetch(HuggingFace(), cache.repository, cache.hf_home / "hub"),
        sink=recorder,
        clock=FakeClock(),
        cancel=_OnceHashing(recorder),
    )
    with pytest.raises(Interrupted, match="hashed or fetched so far is kept"):
        look.verify(ProofLevel.KNOWN)
    assert 0 < cache.ask()["proved"] < 29


class _OnceHashing(FakeCancel):
    """Set when more is hashed than four threads have in hand, so that some of the files are done."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    @property
    def is_set(self) -> bool:
        return any(isinstance(event, ev.Progressed) and (event.done or 0) > 400_000 for event in self._recorder.events)


def test_a_folder_that_is_not_there(tmp_path: Path, shards: Shards) -> None:
    assert "there is no folder" in shards(tmp_path / "gone", code=1)["error"]["what"]


def test_plain_files_without_a_list_are_nobodys(plain: Path, shards: Shards) -> None:
    error = shards(plain, code=1)["error"]
    assert error["what"].endswith("does not say which repository it is of")
    assert error["fix"] == "name a profile (--profile) or the list of its files (--manifest FILE)"


@pytest.fixture
def shared(cache: Cache) -> Path:
    """The shard as huggingface_hub keeps it since 1.33: blobs/<sha256> leads to a store that repositories share."""
    store = cache.hf_home / "hub" / "blobs" / "fe"
    store.mkdir(parents=True)
    blob = store / ("f" * 64)
    shutil.move(cache.blob(ONE), blob)
    blob.chmod(0o444)
    cache.blob(ONE).symlink_to(os.path.relpath(blob, cache.blobs))
    return blob


def test_shared_blobs_are_good_and_are_mended_without_a_word_to_their_store(
    cache: Cache, hub: Hub, shards: Shards, shared: Path
) -> None:
    assert shards(cache.hf_home, "--quick")["verdict"] == "QUICK-OK"
    assert shards(cache.hf_home)["verdict"] == "COMPLETE"
    shared.chmod(0o644)
    _flip(shared)
    assert _kinds(shards(cache.hf_home, code=4)) == {ONE: "digest"}
    hub.stats.reset()
    assert shards(cache.hf_home, "--repair")["verdict"] == "COMPLETE"
    assert set(hub.stats.document()["files"]) == {ONE}
    assert cache.link(ONE).read_bytes() == (cache.world.source / ONE).read_bytes()


def test_a_shared_blob_that_was_cleared_away_dangles(cache: Cache, hub: Hub, shards: Shards, shared: Path) -> None:
    shared.unlink()
    assert _kinds(shards(cache.hf_home, "--quick", code=4)) == {ONE: "dangling"}
    assert shards(cache.hf_home, "--repair")["verdict"] == "COMPLETE"


class TestPlainFiles:
    @pytest.fixture
    def words(self, world: World, hub: Hub, tmp_path: Path) -> tuple[str, str]:
        (tmp_path / "list.json").write_text(json.dumps(world.manifest))
        return ("--manifest", str(tmp_path / "list.json"))

    def test_are_mended_one_by_one_and_what_was_bad_is_kept_aside(
        self, plain: Path, world: World, hub: Hub, shards: Shards, words: tuple[str, str]
    ) -> None:
        _flip(plain / ONE)
        os.truncate(plain / TWO, 640)
        (plain / "config.json").unlink()
        kinds = {ONE: "digest", TWO: "size", "config.json": "missing"}
        assert _kinds(shards(plain, *words, code=4)) == kinds
        mended = shards(plain, *words, "--repair")
        assert mended["verdict"] == "COMPLETE"
        assert set(hub.stats.document()["files"]) == set(kinds)
        assert all((plain / path).read_bytes() == (world.source / path).read_bytes() for path in kinds)
        assert [note.partition(":")[0] for note in _part(mended)["notes"]] == [
            f".cache/huggingface/k3deploy/{path}.bad" for path in (ONE, TWO)
        ]

    def test_may_be_links_to_another_disk_but_not_to_nothing(
        self, plain: Path, tmp_path: Path, shards: Shards, words: tuple[str, str]
    ) -> None:
        shutil.move(plain / ONE, tmp_path / "elsewhere")
        (plain / ONE).symlink_to(tmp_path / "elsewhere")
        assert shards(plain, *words)["verdict"] == "COMPLETE"
        (tmp_path / "elsewhere").unlink()
        assert _kinds(shards(plain, *words, code=4)) == {ONE: "dangling"}

    def test_leave_the_leftovers_of_a_killed_download(
        self, plain: Path, shards: Shards, words: tuple[str, str]
    ) -> None:
        left = plain / ".cache" / "huggingface" / "download" / "x.1a2b3c4d.incomplete"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"x" * 5000)
        name = ".cache/huggingface/download/x.1a2b3c4d.incomplete"
        assert _part(shards(plain, *words))["notes"] == [f"{name}: 5.00 kB, left by a killed download"]
        assert _part(shards(plain, *words, "--repair"))["notes"] == []
        assert not left.exists()

    def test_are_not_mended_where_the_hub_says_no(
        self, plain: Path, hub: Hub, shards: Shards, words: tuple[str, str]
    ) -> None:
        _flip(plain / ONE)
        hub.faults.replace({"gated": True})
        error = shards(plain, *words, "--repair", code=3)["error"]
        assert error["what"] == f"{REPO} is gated, and this account may not read it"

    def test_are_mended_although_the_hub_stumbles(
        self, plain: Path, hub: Hub, shards: Shards, words: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _flip(plain / ONE)
        hub.faults.replace({"rules": [{"kind": "status", "code": 503, "match": ONE, "method": "GET", "times": 1}]})
        assert shards(plain, *words, "--repair")["verdict"] == "COMPLETE"


def test_a_folder_that_cannot_be_written_to_is_proved_and_that_is_said(cache: Cache, hub: Hub, shards: Shards) -> None:
    (cache.repository / ".k3deploy").write_text("in the way")
    found = shards(cache.hf_home)
    assert found["verdict"] == "COMPLETE"
    assert any("cannot be kept" in note for note in _part(found)["notes"])


def test_a_folder_that_cannot_be_looked_into(tmp_path: Path, shards: Shards) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "loop", tmp_path / ("x" * 5000), Path("~nobody-of-this-name/x")):
        error = shards(path, code=1)["error"]
        assert (error["code"], error["what"]) == ("K3-PROFILE-001", f"cannot look into {path}")


def test_a_reference_to_no_commit_is_passed_over(cache: Cache, hub: Hub, shards: Shards) -> None:
    (cache.repository / "refs").mkdir()
    for text in (b"../../..", b"\xff\xfe"):
        (cache.repository / "refs" / "main").write_bytes(text)
        assert _kinds(shards(cache.hf_home, code=4)) == {"refs/main": "ref"}
    assert shards(cache.hf_home, "--repair")["verdict"] == "COMPLETE"


def test_notes_that_cannot_be_read_say_no_commit(plain: Path, shards: Shards) -> None:
    (plain / ".cache" / "huggingface" / "download" / "x.metadata").mkdir(parents=True)
    assert "does not say" in shards(plain, code=1)["error"]["what"]


def test_links_in_a_circle_are_mended(cache: Cache, plain: Path, world: World, hub: Hub, shards: Shards) -> None:
    (plain.parent / "list.json").write_text(json.dumps(world.manifest))
    for folder, place in ((cache.hf_home, cache.blob(ONE)), (plain, plain / ONE)):
        words = ("--manifest", str(plain.parent / "list.json"))
        place.unlink()
        place.symlink_to(place.name)
        assert _kinds(shards(folder, *words, code=4)) == {ONE: "unreadable"}
        assert shards(folder, *words, "--repair")["verdict"] == "COMPLETE"


def test_a_bad_copy_in_a_snapshot_without_links_is_moved_and_not_lost(cache: Cache, hub: Hub, shards: Shards) -> None:
    cache.link(ONE).unlink()
    cache.blob(ONE).rename(cache.link(ONE))
    _flip(cache.link(ONE))
    bad = cache.link(ONE).read_bytes()
    assert _kinds(shards(cache.hf_home, code=4)) == {ONE: "digest"}
    assert shards(cache.hf_home, "--repair")["verdict"] == "COMPLETE"
    assert cache.blobs.joinpath(cache.blob(ONE).name + ".bad").read_bytes() == bad


def test_a_folder_in_the_place_of_a_file_is_kept_each_time(
    cache: Cache, plain: Path, world: World, hub: Hub, shards: Shards
) -> None:
    (plain.parent / "list.json").write_text(json.dumps(world.manifest))
    ours = plain / ".cache" / "huggingface" / "k3deploy"
    for folder, place, aside in ((cache.hf_home, cache.blob(ONE), cache.blobs), (plain, plain / ONE, ours)):
        for note in ("first", "second"):
            place.unlink()
            place.mkdir()
            (place / "note").write_text(note)
            shards(folder, "--manifest", str(plain.parent / "list.json"), "--repair")
        assert [(aside / f"{place.name}{end}" / "note").read_text() for end in (".bad", ".2.bad")] == [
            "first",
            "second",
        ]


def test_a_folder_named_like_an_unfinished_download_stays(cache: Cache, hub: Hub, shards: Shards) -> None:
    orphan = cache.blobs / "x.1a2b3c4d.incomplete"
    orphan.mkdir()
    cache.link(ONE).unlink()
    assert shards(cache.hf_home, "--repair")["verdict"] == "COMPLETE"
    assert orphan.is_dir()


def test_a_name_on_the_disk_forges_no_line(cache: Cache, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    (cache.repository / "snapshots" / "a\x1b[31m\nCOMPLETE: all").mkdir()
    (cache.blobs / "b\rCOMPLETE.incomplete").write_text("x")
    assert run(["verify-shards", "--local", str(cache.snapshot)]) == 0
    said = capsys.readouterr().out
    assert r"snapshot a\x1b[31m\nCOMPLETE: all: another commit" in said
    assert r"b\rCOMPLETE.incomplete: 1 B" in said


def test_a_listed_file_that_the_hub_lacks_is_named(
    cache: Cache, hub: Hub, shards: Shards, world: World, tmp_path: Path
) -> None:
    stranger = {**world.file(ONE), "path": "folder/copy.safetensors"}
    (tmp_path / "list.json").write_text(json.dumps({**world.manifest, "files": [*world.manifest["files"], stranger]}))
    cache.blob(ONE).unlink()
    error = shards(cache.hf_home, "--manifest", str(tmp_path / "list.json"), "--repair", code=3)["error"]
    assert error["what"].endswith(f"has no such file at {world.manifest['commit']}: copy.safetensors")
    assert "get the list anew" in error["fix"]
