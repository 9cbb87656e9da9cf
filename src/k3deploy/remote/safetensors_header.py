"""Read and check the head of a .safetensors file: a few hundred kilobytes that prove the shape of sixteen gigabytes.

Format: 8 bytes little-endian length, a JSON object {tensor: {dtype, shape, data_offsets}}, then the tensors' bytes
without gaps.

Kimi K3 has half a million tensors, so all of a file's are judged at once, in whole lists and without a Python call for
each; only a file with something wrong is gone through tensor by tensor, to say what.
"""

import json
import math
import struct
from typing import Any

# safetensors itself refuses headers over 100 MB; real ones are below 1 MB.
_MAX_HEADER_BYTES = 25_000_000
_LENGTH_BYTES = 8

# Bits per element (safetensors 0.8). A type that is not in the list is only checked for its place in the file.
_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}


class BadHeader(Exception):
    """The head of the file cannot be what a safetensors writer wrote. The message says what is wrong."""


def tensor_names(path: str, size_bytes: int) -> list[str]:
    """The names of the tensors in the file. Raises BadHeader unless every byte of the file is accounted for."""
    with open(path, "rb") as file:
        head = file.read(_LENGTH_BYTES)
        if len(head) < _LENGTH_BYTES:
            raise BadHeader(f"only {len(head)} bytes")
        (length,) = struct.unpack("<Q", head)
        if length > min(_MAX_HEADER_BYTES, size_bytes - _LENGTH_BYTES):
            raise BadHeader(f"a header of {length} bytes in a file of {size_bytes}")
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadHeader(f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise BadHeader("the header is not an object")
    header.pop("__metadata__", None)
    data_bytes = size_bytes - _LENGTH_BYTES - length
    if not _is_whole(header, data_bytes) and (fault := _what_is_wrong(header, data_bytes)):
        raise BadHeader(fault)
    return list(header)


def _is_whole(header: dict[str, Any], data_bytes: int) -> bool:
    """Whether the tensors follow each other from byte 0 to the end, each as long as its type and shape say.

    False as well for what this quick way cannot judge, such as a type it does not know.
    """
    tensors = header.values()
    try:
        spans = [tensor["data_offsets"] for tensor in tensors]
        bits = [math.prod(tensor["shape"]) * _BITS[tensor["dtype"]] for tensor in tensors]
        if bits != [(end - begin) * 8 for begin, end in spans]:
            return False
        spans.sort()
        begins, ends = [begin for begin, _ in spans], [end for _, end in spans]
    except (KeyError, TypeError, ValueError, OverflowError):
        return False
    return [0, *ends] == [*begins, data_bytes]


def _what_is_wrong(header: dict[str, Any], data_bytes: int) -> str:
    """The first thing that is wrong, in words; empty when nothing is (a tensor of a type that we do not know)."""
    spans = []
    for name, tensor in header.items():
        try:
            begin, end = (int(at) for at in tensor["data_offsets"])
            elements = math.prod(int(dimension) for dimension in tensor["shape"])
            bits = _BITS.get(tensor["dtype"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return f"tensor {name} has no dtype, shape or data_offsets"
        if bits is not None and elements * bits != (end - begin) * 8:
            return f"tensor {name} has {end - begin} bytes, its type and shape need {elements * bits // 8}"
        spans.append((begin, end, name))
    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            return f"tensor {name} begins at byte {begin}, the one before ends at {position}"
        position = end
    return "" if position == data_bytes else f"the tensors end at byte {position} of {data_bytes}"
