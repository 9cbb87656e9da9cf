"""The process that downloads with the Hub's client: told to stop, it lets go of one file and goes on with others."""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3deploy.adapters.bundle import script
from k3deploy.remote.fetch_failure import RETRY, failure
from k3deploy.remote.hub_cache import wanted_files
from tests.lab.hub import Hub
from tests.lab.hub_files import Repositories
from tests.unit.remote_program import until
from tests.unit.weights_world import REPO, Cache, World, empty_cache, manifest_of, serving

LARGE, OTHER = "a.safetensors", "b.safetensors"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    folder = tmp_path / "root" / REPO
    folder.mkdir(parents=True)
    (folder / LARGE).write_bytes(bytes(16 << 20))
    (folder / OTHER).write_bytes(b"x" * 1000)
    commit = Repositories(tmp_path / "root").commit(REPO)
    return empty_cache(World(tmp_path / "root", folder, manifest_of(folder, commit)), tmp_path / "node")


@pytest.fixture
def hub(cache: Cache) -> Iterator[Hub]:
    with serving(cache.world) as hub:
        yield hub


@pytest.fixture
def worker(cache: Cache, hub: Hub, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    program = tmp_path / "worker.py"
    program.write_bytes(script("fetch_worker", {}))
    process = subprocess.Popen(
        [sys.executable, "-I", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_SHARED_BLOBS": "1",
        },
    )
    client = {"client": sysconfig.get_paths()["purelib"], "token": None, "threads": 1}
    where = {"hf_home": str(cache.hf_home), "repo": REPO, "commit": cache.manifest["commit"]}
    send(process, {**client, **where})
    assert hear(process) == {"ready": True}
    yield process
    process.kill()
    process.communicate()


def send(process: "subprocess.Popen[bytes]", body: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(body).encode() + b"\n")
    process.stdin.flush()


def hear(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    word: dict[str, Any] = json.loads(process.stdout.readline())["progress"]
    return word


def test_told_to_stop_it_leaves_nothing_of_the_file_and_takes_the_next(
    cache: Cache, hub: Hub, worker: "subprocess.Popen[bytes]"
) -> None:
    files = {file.path: file._asdict() for file in wanted_files(cache.manifest)}
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 4 << 20, "match": LARGE}]})
    send(worker, {"file": files[LARGE]})
    send(worker, {"file": files[OTHER]})
    until(lambda: any(path.stat().st_size for path in cache.blobs.glob("*.incomplete")), "a piece of it has come")
    send(worker, {"stop": LARGE})
    word = hear(worker)
    assert (word["file"], word["failure"]["kind"]) == (LARGE, "stopped")
    # By name: the next file may be on its way already.
    assert list(cache.blobs.glob(f"{files[LARGE]['digest']}*")) == []
    assert hear(worker) == {"landed": OTHER}
    word = hear(worker)
    assert (word["file"], word["failure"], word["digest"]) == (OTHER, None, files[OTHER]["digest"])
    assert not cache.blob(LARGE).exists()


def test_an_address_in_a_failure_keeps_no_signature() -> None:
    said = "403 Forbidden for url 'https://cdn.example/a/b?X-Amz-Signature=abc&Expires=9' (id: 1?2)"
    assert failure(RETRY, said)["text"] == "403 Forbidden for url 'https://cdn.example/a/b?...' (id: 1?2)"
