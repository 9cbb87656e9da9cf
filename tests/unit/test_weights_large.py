"""A shard of 17 GB, sparse on disk: it is proved in little memory, whatever its size."""

import contextlib
import os
from pathlib import Path

from tests.lab import checkpoint
from tests.unit.remote_program import finish, start
from tests.unit.weights_world import REPO, Cache, World, empty_cache

SHARD = "model-00001-of-000002.safetensors"
# `openssl dgst -sha256` of that file, as tests/lab/checkpoint.py writes it.
SHA256 = "6f7896f085a675d791fc308298549cfca77166dbbee2378c898a534a5a30ad3b"
SIZE_BYTES = 17_000_000_624
LIMIT_KIB = 300 * 1000 * 1000 // 1024


def test_a_17_gb_shard_is_proved_in_less_than_300_mb(tmp_path: Path) -> None:
    commit = checkpoint.build(tmp_path / "root", "sparse17g")
    source = tmp_path / "root" / REPO
    file = {"path": SHARD, "size": SIZE_BYTES, "sha256": SHA256, "blob_id": "0" * 40}
    world = World(tmp_path / "root", source, {"repo": REPO, "commit": commit, "files": [file]})
    cache = _holding(world, tmp_path / "node")

    process = start("hashing", cache.args(level="full"))
    peak_kib = 0
    while process.poll() is None:
        peak_kib = max(peak_kib, _tree_peak_kib(process.pid))
        with contextlib.suppress(Exception):
            process.wait(0.2)
    result = finish(process).result

    assert result["faults"] == []
    assert (result["hashed_bytes"], result["proved"]) == (SIZE_BYTES, 1)
    assert 1000 < peak_kib < LIMIT_KIB
    # The next run knows it, and reads none of it.
    assert cache.ask()["proved"] == 1


def _holding(world: World, folder: Path) -> Cache:
    cache = empty_cache(world, folder)
    cache.blobs.mkdir(parents=True)
    cache.snapshot.mkdir(parents=True)
    (world.source / SHARD).rename(cache.blob(SHARD))  # moved, not copied: the hole stays a hole
    cache.link(SHARD).symlink_to(os.path.relpath(cache.blob(SHARD), cache.snapshot))
    return cache


def _tree_peak_kib(root: int) -> int:
    """The highest resident size that each process of a tree ever had, added up."""
    total = 0
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, KeyError):
            if folder.name.isdigit() and root in (int(folder.name), int(_status(folder)["PPid"])):
                total += int(_status(folder)["VmHWM"].split()[0])
    return total


def _status(folder: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
