"""Miniature checkpoints with the real one's file names and shape: what the lab's Hub serves.

`build(root, variant)` writes the repository `lab/Kimi-K3-mini` and its draft `lab/Kimi-K3-DSpark-mini` below `root`, in
the same bytes each time, and leaves the commit and the expected figures beside each (`<repository>.lab.json`, outside
of the repository itself). Shards are valid safetensors files; index, configuration, tokenizer and code are all there.
"""

import hashlib
import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPO = "lab/Kimi-K3-mini"
DRAFT_REPO = "lab/Kimi-K3-DSpark-mini"
_EXPECTED = Path(__file__).with_suffix(".json")
_SHARDS = 96
_KIB, _MIB = 1 << 10, 1 << 20
_BLOCK_BYTES = 16 * _MIB


@dataclass(frozen=True)
class Variant:
    """How many shards, how large, and how large the one sparse shard is, if there is one."""

    shards: int
    shard_bytes: int
    sparse_bytes: int = 0


VARIANTS = {
    "mini": Variant(shards=_SHARDS, shard_bytes=96 * _KIB),
    "small12": Variant(shards=12, shard_bytes=96 * _KIB),
    "large": Variant(shards=_SHARDS, shard_bytes=4 * _MIB),
    # Large enough that a transfer's start-up does not hide its rate, and, with big files, that a disk's rate shows.
    "bench": Variant(shards=_SHARDS, shard_bytes=12_500_000),
    "bench108": Variant(shards=108, shard_bytes=3_730_000),
    "bench16": Variant(shards=16, shard_bytes=400_000_000),
    "sparse17g": Variant(shards=2, shard_bytes=96 * _KIB, sparse_bytes=17_000_000_000),
}


@dataclass(frozen=True)
class Expected:
    """What a complete copy of a repository holds."""

    repo: str
    commit: str
    files: int
    total_bytes: int
    shards: int
    shard_bytes: int


def build(dest_root: Path, variant: str) -> str:
    """Write both repositories of a variant; returns the commit of `lab/Kimi-K3-mini`."""
    spec = VARIANTS[variant]
    if (found := _built(dest_root, variant)) is not None:
        return found.commit
    folder = dest_root / REPO
    folder.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(1, spec.shards + 1):
        name = f"model-{number:05d}-of-{spec.shards:06d}.safetensors"
        is_sparse = spec.sparse_bytes > 0 and number == 1
        layout = _layout(number, spec.sparse_bytes if is_sparse else spec.shard_bytes)
        total += _write_shard(folder / name, layout, is_sparse=is_sparse)
        weight_map |= dict.fromkeys(layout, name)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    for name, data in _small_files().items():
        (folder / name).write_bytes(data)
    _build_draft(dest_root, variant)
    return _note(dest_root, REPO, variant).commit


def expected(variant: str, repo: str = REPO) -> Expected:
    """The figures of a complete copy, from the list that is kept beside this module."""
    figures: dict[str, dict[str, Any]] = json.loads(_EXPECTED.read_text(encoding="utf-8"))[variant]
    return Expected(**figures[repo])


def built(dest_root: Path, repo: str = REPO) -> Expected:
    """The figures of a repository as `build` wrote it below this root."""
    noted: dict[str, Any] = json.loads(_note_path(dest_root, repo).read_text(encoding="utf-8"))
    noted.pop("variant")
    return Expected(**noted)


def _built(dest_root: Path, variant: str) -> Expected | None:
    path = _note_path(dest_root, REPO)
    if not path.is_file() or json.loads(path.read_text(encoding="utf-8"))["variant"] != variant:
        return None
    return built(dest_root)


def _note_path(dest_root: Path, repo: str) -> Path:
    return dest_root / f"{repo}.lab.json"


def _note(dest_root: Path, repo: str, variant: str) -> Expected:
    files = {path.name: path.stat().st_size for path in sorted((dest_root / repo).iterdir())}
    shards = {name: size for name, size in files.items() if name.endswith(".safetensors")}
    commit = hashlib.sha1(json.dumps([repo, variant, files]).encode(), usedforsecurity=False).hexdigest()
    found = Expected(
        repo=repo,
        commit=commit,
        files=len(files),
        total_bytes=sum(files.values()),
        shards=len(shards),
        shard_bytes=sum(shards.values()),
    )
    _note_path(dest_root, repo).write_text(
        json.dumps({**found.__dict__, "variant": variant}, indent=1) + "\n", encoding="utf-8"
    )
    return found


def _layout(number: int, data_bytes: int) -> dict[str, dict[str, Any]]:
    """Tensors of one shard: layer N's experts are in shard N+1, as in the real checkpoint."""
    stem = f"language_model.model.layers.{number - 1}"
    names = [f"{stem}.self_attn.q_proj.weight"]
    names += [f"{stem}.block_sparse_moe.experts.{expert}.w1.weight_packed" for expert in range(3)]
    if number == _SHARDS:
        names.append("vision_tower.patch_embed.weight")
    each = data_bytes // len(names) // 64 * 64
    return {
        name: {"dtype": "U8", "shape": [each // 64, 64], "data_offsets": [at * each, (at + 1) * each]}
        for at, name in enumerate(names)
    }


def _write_shard(path: Path, layout: dict[str, dict[str, Any]], *, is_sparse: bool = False) -> int:
    """One safetensors file; returns the bytes of its tensors. A sparse one has a hole for its data."""
    text = json.dumps({"__metadata__": {"format": "pt"}, **layout}, separators=(",", ":")).encode()
    header = text + b" " * (-len(text) % 8)
    size = int(max(entry["data_offsets"][1] for entry in layout.values()))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        if is_sparse:
            file.write(_bytes(path.name, _MIB))
            file.truncate(8 + len(header) + size)
        else:
            for at in range(0, size, _BLOCK_BYTES):
                file.write(_bytes(f"{path.name}{at or ''}", min(_BLOCK_BYTES, size - at)))
    return size


def _bytes(seed: str, size: int) -> bytes:
    """Bytes that look random, the same for a seed on each machine and Python."""
    return hashlib.shake_256(seed.encode()).digest(size)


def _build_draft(dest_root: Path, variant: str) -> None:
    folder = dest_root / DRAFT_REPO
    folder.mkdir(parents=True, exist_ok=True)
    layout = {"model.draft.weight": {"dtype": "U8", "shape": [1024, 64], "data_offsets": [0, 65536]}}
    _write_shard(folder / "model.safetensors", layout)
    config = {"architectures": ["KimiK3DSparkForCausalLM"], "model_type": "kimi_k3_dspark", "block_size": 7}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text("# A draft model for the lab\n", encoding="utf-8")
    (folder / ".gitattributes").write_text(_ATTRIBUTES, encoding="utf-8")
    _note(dest_root, DRAFT_REPO, variant)


def _small_files() -> dict[str, bytes]:
    code = {
        "configuration_kimi_k3.py": "class KimiK3Config:\n    model_type = 'kimi_k3'\n",
        "modeling_kimi_k3.py": "from .modeling_kimi_linear import KimiLinear\n\nKimiK3 = KimiLinear\n",
        "modeling_kimi_linear.py": "class KimiLinear:\n    pass\n",
        "tokenization_kimi.py": "class TikTokenTokenizer:\n    pass\n",
        "encoding_k3.py": "def encode(messages):\n    return messages\n",
        "kimi_k3_processor.py": "class KimiK3Processor:\n    pass\n",
        "kimi_k3_vision_processing.py": "class KimiK3VisionProcessor:\n    pass\n",
        "media_utils.py": "def load_image(url):\n    return url\n",
    }
    documents = {
        "config.json": _CONFIG,
        "generation_config.json": {"eos_token_id": 163586, "max_length": 1_048_576},
        "tokenizer_config.json": {
            "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
            "model_max_length": 1_048_576,
            "tokenizer_class": "TikTokenTokenizer",
        },
        "preprocessor_config.json": {"auto_map": {"AutoProcessor": "kimi_k3_processor.KimiK3Processor"}},
    }
    texts = {
        "README.md": "---\nlicense: other\nlicense_name: kimi-k3\n---\n# Kimi K3, in miniature\n",
        "LICENSE": "A stand-in for the model's licence.\n",
        ".gitattributes": _ATTRIBUTES + _ATTRIBUTES.replace("safetensors", "model"),
    }
    files = {name: text.encode() for name, text in (code | texts).items()}
    files |= {name: (json.dumps(document, indent=2) + "\n").encode() for name, document in documents.items()}
    files["tiktoken.model"] = _bytes("tiktoken.model", 64 * _KIB)
    return files


_ATTRIBUTES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
_CONFIG: dict[str, Any] = {
    "architectures": ["KimiK3ForConditionalGeneration"],
    "auto_map": {
        "AutoConfig": "configuration_kimi_k3.KimiK3Config",
        "AutoModel": "modeling_kimi_k3.KimiK3",
    },
    "model_type": "kimi_k3",
    "quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "group_size": 32},
    "text_config": {
        "model_type": "kimi_linear",
        "num_hidden_layers": 93,
        "hidden_size": 7168,
        "num_attention_heads": 96,
        "num_experts": 896,
        "num_experts_per_token": 16,
        "kv_lora_rank": 512,
        "vocab_size": 163_840,
        "max_position_embeddings": 1_048_576,
    },
}


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), sys.argv[2]))
