"""The head of a shard accounts for every byte of it, or it is said what does not fit."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote.safetensors_header import BadHeader, tensor_names


def _file(folder: Path, header: Any, data_bytes: int, length: int | None = None) -> tuple[str, int]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + bytes(data_bytes))
    return str(path), 8 + len(text) + data_bytes


def _tensor(begin: int, end: int, shape: list[int] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "data_bytes", "names"),
    [
        ({"a": _tensor(0, 6, [3, 2]), "b": _tensor(6, 10)}, 10, ["a", "b"]),
        ({"b": _tensor(6, 10), "a": _tensor(0, 6)}, 10, ["b", "a"]),  # their order in the text does not matter
        ({"__metadata__": {"format": "pt"}, "a": _tensor(0, 8, [2, 2], "BF16")}, 8, ["a"]),
        ({"a": _tensor(0, 3, [6], "F4")}, 3, ["a"]),  # two to a byte
        ({"a": _tensor(0, 4, [], "F32"), "none": _tensor(4, 4, [0, 7])}, 4, ["a", "none"]),  # a scalar; nothing
        ({"a": _tensor(0, 5, [2], "Q7"), "b": _tensor(5, 6)}, 6, ["a", "b"]),  # a type of the future
        ({}, 0, []),
    ],
)
def test_what_a_writer_may_write(tmp_path: Path, header: Any, data_bytes: int, names: list[str]) -> None:
    assert tensor_names(*_file(tmp_path, header, data_bytes)) == names


@pytest.mark.parametrize(
    ("header", "data_bytes", "why"),
    [
        ({"a": _tensor(0, 6), "b": _tensor(8, 10)}, 10, "tensor b begins at byte 8, the one before ends at 6"),
        ({"a": _tensor(0, 6), "b": _tensor(4, 10)}, 10, "tensor b begins at byte 4, the one before ends at 6"),
        ({"a": _tensor(2, 6)}, 6, "tensor a begins at byte 2, the one before ends at 0"),
        ({"a": _tensor(0, 6)}, 7, "the tensors end at byte 6 of 7"),
        ({"a": _tensor(0, 6)}, 5, "the tensors end at byte 6 of 5"),
        ({"a": _tensor(0, 6, [3, 1])}, 6, "tensor a has 6 bytes, its type and shape need 3"),
        ({"a": _tensor(0, 6, [2], "F32")}, 6, "tensor a has 6 bytes, its type and shape need 8"),
        ({"a": {"dtype": "U8", "shape": [6]}}, 6, "tensor a has no dtype, shape or data_offsets"),
        ({"a": [0, 6]}, 6, "tensor a has no dtype, shape or data_offsets"),
        ({"a": _tensor(0, 6) | {"data_offsets": [0, 3, 6]}}, 6, "tensor a has no dtype, shape or data_offsets"),
        ({"a": _tensor(0, 6) | {"dtype": ["U8"]}}, 6, "tensor a has no dtype, shape or data_offsets"),
        ({"a": _tensor(0, 6) | {"shape": [float("inf")]}}, 6, "tensor a has no dtype, shape or data_offsets"),
        ({"a": _tensor(0, 6) | {"shape": [10**400, 1.5]}}, 6, "tensor a has 6 bytes, its type and shape need 1000"),
        ({"a": _tensor(0, 6) | {"data_offsets": [0, float("inf")]}}, 6, "tensor a has no dtype, shape or data_offsets"),
        ([], 0, "the header is not an object"),
        (b"\xff\xfe", 0, "the header is not JSON"),
        (b'{"a": ', 0, "the header is not JSON"),
        (b"[" * 100_000, 0, "the header is not JSON"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, header: Any, data_bytes: int, why: str) -> None:
    with pytest.raises(BadHeader) as caught:
        tensor_names(*_file(tmp_path, header, data_bytes))
    assert str(caught.value).startswith(why)


def test_a_length_beyond_the_file_or_any_header_is_not_read(tmp_path: Path) -> None:
    path, size = _file(tmp_path, {"a": _tensor(0, 6)}, 6, length=10_000)
    with pytest.raises(BadHeader, match=f"a header of 10000 bytes in a file of {size}"):
        tensor_names(path, size)
    with pytest.raises(BadHeader, match="a header of 25000001 bytes"):
        tensor_names(_file(tmp_path, {}, 0, length=25_000_001)[0], 17_000_000_000)


def test_a_file_of_seven_bytes_has_no_length(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(bytes(7))
    with pytest.raises(BadHeader, match="only 7 bytes"):
        tensor_names(str(tmp_path / "x.safetensors"), 7)
