"""A miniature checkpoint, its manifest worked out from the files themselves, and caches that hold it."""

import hashlib
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import checkpoint
from tests.lab.hub import Hub, start
from tests.unit.remote_program import Ran, run, section

REPO = checkpoint.REPO


@dataclass(frozen=True)
class World:
    """`source`: the repository's files; `manifest`: in the JSON shape that node programs take."""

    root: Path
    source: Path
    manifest: dict[str, Any]

    def file(self, path: str) -> dict[str, Any]:
        return next(f for f in self.manifest["files"] if f["path"] == path)

    @property
    def shards(self) -> list[str]:
        return [f["path"] for f in self.manifest["files"] if f["path"].endswith(".safetensors")]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("checkpoint")
    commit = checkpoint.build(root, "small12")
    source = root / REPO
    return World(root, source, manifest_of(source, commit))


def manifest_of(source: Path, commit: str) -> dict[str, Any]:
    files = []
    for path in sorted(source.iterdir()):
        data = path.read_bytes()
        is_large = path.suffix in (".safetensors", ".model")
        files.append(
            {
                "path": path.name,
                "size": len(data),
                "sha256": hashlib.sha256(data).hexdigest() if is_large else None,
                "blob_id": hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest(),
            }
        )
    return {"repo": REPO, "commit": commit, "files": files}


@dataclass(frozen=True)
class Cache:
    """The Hugging Face cache of one node."""

    world: World
    folder: Path
    manifest: dict[str, Any]

    @property
    def hf_home(self) -> Path:
        return self.folder / "hf"

    @property
    def repository(self) -> Path:
        return self.hf_home / "hub" / ("models--" + REPO.replace("/", "--"))

    @property
    def blobs(self) -> Path:
        return self.repository / "blobs"

    @property
    def snapshot(self) -> Path:
        return self.repository / "snapshots" / str(self.manifest["commit"])

    def link(self, path: str) -> Path:
        return self.snapshot / path

    def blob(self, path: str) -> Path:
        file = self.world.file(path)
        return self.blobs / str(file["sha256"] or file["blob_id"])

    def fill(self) -> "Cache":
        """As the Hub's client leaves it after a complete download of a commit."""
        self.blobs.mkdir(parents=True)
        self.snapshot.mkdir(parents=True)
        for file in self.manifest["files"]:
            shutil.copyfile(self.world.source / file["path"], self.blob(file["path"]))
            self.link(file["path"]).symlink_to(os.path.relpath(self.blob(file["path"]), self.snapshot))
        return self

    def args(self, **more: Any) -> dict[str, Any]:
        return {"hf_home": str(self.hf_home), "manifest": self.manifest, **more}

    def ask(self) -> Any:
        """The standing question about weights."""
        return section("weights", **self.args())

    def prove(self, level: str = "resume", **more: Any) -> Any:
        return run("hashing", self.args(level=level, **more)).result

    def fetch_args(self, hub: Hub, **more: Any) -> dict[str, Any]:
        (self.folder / "scratch").mkdir(exist_ok=True)
        return {
            **self.args(),
            "client": sysconfig.get_paths()["purelib"],
            "environment": {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}"},
            "in_flight": 2,
            "stall_s": 30.0,
            "floor_bytes": 1_000_000,
            "scratch": str(self.folder / "scratch"),
            "wait_base_s": 0.05,
            "secrets": {},
            **more,
        }

    def fetch(self, hub: Hub, **more: Any) -> Ran:
        return run("fetch", self.fetch_args(hub, **more))


def drop(path: Path) -> None:
    """Have the kernel forget a file's pages, as if nobody had read it since the machine started."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def empty_cache(world: World, folder: Path) -> Cache:
    folder.mkdir(exist_ok=True)
    return Cache(world, folder, world.manifest)


@contextmanager
def serving(world: World, log: Path | None = None) -> Iterator[Hub]:
    """A Hub of the lab's kind, in this process, on a free port of the loopback."""
    hub, stop = start(world.root, log=log)
    try:
        yield hub
    finally:
        stop()
