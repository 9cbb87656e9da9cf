"""A quick look at headers of Kimi K3's real size: 516,096 tensors, of which nothing is wrong, or one is."""

import contextlib
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit import real_headers
from tests.unit.real_headers import INDEX, RealHeaders
from tests.unit.remote_program import finish, start

LIMIT_KIB = 300 * 1000 * 1000 // 1024
SHARD = "model-00050-of-000096.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RealHeaders:
    return real_headers.build(tmp_path_factory.mktemp("real"))


def _look(made: RealHeaders) -> tuple[Any, int]:
    """The result of the program, and the most memory that it had, in KiB."""
    process = start("hashing", {"hf_home": str(made.hf_home), "manifest": made.manifest, "level": "quick"})
    peak_kib = 0
    while process.poll() is None:
        with contextlib.suppress(OSError, KeyError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak_kib = int(dict(line.split(":", 1) for line in status.splitlines())["VmHWM"].split()[0])
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    return finish(process).result, peak_kib


def test_all_of_it_is_read_once_and_in_little_memory(made: RealHeaders) -> None:
    result, peak_kib = _look(made)
    assert result["faults"] == []
    assert result["hashed"] == 0
    index_bytes = (made.snapshot / INDEX).stat().st_size
    # 516,096 tensors: 62 MB name them in the index, 78 MB describe them in the headers.
    assert (index_bytes // 1_000_000, made.header_bytes // 1_000_000) == (62, 78)
    # Each of these bytes once; little beside: modules, links, and the rest of a buffer behind each header.
    assert 0 <= result["read_bytes"] - index_bytes - made.header_bytes < 2_000_000
    assert 100_000 < peak_kib < LIMIT_KIB


def test_one_tensor_among_half_a_million_is_found(made: RealHeaders) -> None:
    shard = (made.snapshot / SHARD).resolve()
    with shard.open("r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        text = file.read(length)
        place = text.index(b"layers.49.block_sparse_moe.experts.777.w2.weight_scale")
        file.seek(8 + place)
        file.write(b"layers.48")
    try:
        (fault,) = _look(made)[0]["faults"]
    finally:
        with shard.open("r+b") as file:
            file.seek(8)
            file.write(text)
    moved = "block_sparse_moe.experts.777.w2.weight_scale"
    assert (fault["path"], fault["kind"]) == (SHARD, "tensors")
    assert fault["found"] == (
        f"lacks language_model.model.layers.49.{moved}, holds language_model.model.layers.48.{moved}"
    )
