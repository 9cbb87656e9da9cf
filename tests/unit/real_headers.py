"""The head of a checkpoint of Kimi K3's real size: 96 shards of 5,376 tensors each, and the index that names them all.

896 experts x 3 matrices x 2 tensors (packed weights and their scales) a layer, a layer a shard. The tensors' bytes are
holes, so that 0.8 TB take the space of their headers: 78 MB, and the index 62 MB.
"""

import json
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

REPO = "lab/real-headers"
COMMIT = "c" * 40
SHARDS = 96
EXPERTS = 896
INDEX = "model.safetensors.index.json"
_PACKED_BYTES = 2048 * 1408  # a matrix of 4-bit weights
_SCALE_BYTES = 128 * 1408


@dataclass(frozen=True)
class RealHeaders:
    """`manifest` in the JSON shape that node programs take. Digests are made up: nothing of this is for hashing."""

    hf_home: Path
    manifest: dict[str, Any]
    header_bytes: int

    @property
    def snapshot(self) -> Path:
        return self.hf_home / "hub" / "models--lab--real-headers" / "snapshots" / COMMIT


def build(folder: Path, shards: int = SHARDS) -> RealHeaders:
    """Write the cache below a folder, as the Hub's client leaves it."""
    made = RealHeaders(folder / "hf", {"repo": REPO, "commit": COMMIT, "files": []}, 0)
    header_bytes = 0
    blobs = made.snapshot.parent.parent / "blobs"
    for place in (blobs, made.snapshot):
        place.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    for number in range(1, shards + 1):
        name = f"model-{number:05d}-of-{shards:06d}.safetensors"
        layout = _layout(number)
        weight_map |= dict.fromkeys(layout, name)
        text = json.dumps({"__metadata__": {"format": "pt"}, **layout}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        head = struct.pack("<Q", len(text)) + text
        header_bytes += len(head)
        _put(made, blobs, name, head, len(head) + EXPERTS * 3 * (_PACKED_BYTES + _SCALE_BYTES))
    index = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}, indent=2).encode()
    _put(made, blobs, INDEX, index, len(index))
    return replace(made, header_bytes=header_bytes)


def _layout(number: int) -> dict[str, dict[str, Any]]:
    layout = {}
    at = 0
    for expert in range(EXPERTS):
        for matrix in ("w1", "w2", "w3"):
            stem = f"language_model.model.layers.{number - 1}.block_sparse_moe.experts.{expert}.{matrix}"
            for kind, rows, size in (("weight_packed", 2048, _PACKED_BYTES), ("weight_scale", 128, _SCALE_BYTES)):
                layout[f"{stem}.{kind}"] = {"dtype": "U8", "shape": [rows, 1408], "data_offsets": [at, at + size]}
                at += size
    return layout


def _put(made: RealHeaders, blobs: Path, name: str, head: bytes, size_bytes: int) -> None:
    digest = f"{len(made.manifest['files']):064x}"
    with (blobs / digest).open("wb") as file:
        file.write(head)
        file.truncate(size_bytes)
    (made.snapshot / name).symlink_to(f"../../blobs/{digest}")
    made.manifest["files"].append({"path": name, "size": size_bytes, "sha256": digest, "blob_id": "0" * 40})
