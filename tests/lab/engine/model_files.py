"""The model's files as the engine finds them: a folder, or a name looked up in the Hugging Face cache."""

import json
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

K3 = "KimiK3ForConditionalGeneration"
DRAFTS = ("KimiK3DSparkForCausalLM", "KimiK3DFlashForCausalLM")
K3_CODE = (
    "configuration_kimi_k3.py",
    "modeling_kimi_k3.py",
    "modeling_kimi_linear.py",
    "tokenization_kimi.py",
    "encoding_k3.py",
    "kimi_k3_processor.py",
    "kimi_k3_vision_processing.py",
    "media_utils.py",
)
K3_FILES = ("generation_config.json", "tokenizer_config.json", "preprocessor_config.json", "tiktoken.model")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_HEADER_BYTES = 100_000_000


class LocalEntryNotFoundError(Exception):
    """The cache does not hold what was asked for, and the Hub can't be asked."""

    __module__ = "huggingface_hub.errors"


class SafetensorError(Exception):
    """A shard's header can't be read."""

    __module__ = "safetensors_rust"


@dataclass(frozen=True)
class Model:
    """A model whose small files are all there; its weights are checked when they are loaded."""

    name: str
    folder: Path
    config: dict[str, Any]

    @property
    def architecture(self) -> str:
        """The first architecture that the configuration names."""
        return str((self.config.get("architectures") or ["?"])[0])

    @property
    def context_len(self) -> int:
        """The longest context the model was made for."""
        text = self.config.get("text_config", self.config)
        return int(text.get("max_position_embeddings") or text.get("model_max_length") or 1_048_576)


def hf_home() -> Path:
    """The Hugging Face folder that this process uses."""
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def find_model(name: str, revision: str | None, *, trusts_code: bool) -> Model:
    """The model's folder and configuration, after everything the main process needs has been found in it."""
    folder = Path(name) if Path(name).is_dir() else _snapshot(name, revision)
    config = json.loads(_needed(name, folder, "config.json").read_text(encoding="utf-8"))
    model = Model(name=name, folder=folder, config=config)
    if model.architecture not in (K3, *DRAFTS):
        raise ValueError(f"Model architectures {config.get('architectures')} are not supported for now.")
    if model.architecture != K3:
        return model
    if not trusts_code:
        raise ValueError(
            f"The repository {name} contains custom code which must be executed to correctly load the model. "
            "Please pass the argument `trust_remote_code=True` to allow custom code to be run."
        )
    for file in (*K3_CODE, *K3_FILES):
        _needed(name, folder, file)
    _copy_code(model)
    return model


def _snapshot(name: str, revision: str | None) -> Path:
    cache = Path(os.environ.get("HF_HUB_CACHE") or hf_home() / "hub")
    repository = cache / f"models--{name.replace('/', '--')}"
    commit = revision or "main"
    if not _COMMIT.fullmatch(commit):
        reference = repository / "refs" / commit
        if not reference.is_file():
            raise _not_cached()
        commit = reference.read_text(encoding="utf-8").strip()
    folder = repository / "snapshots" / commit
    if not folder.is_dir():
        raise _not_cached()
    return folder


def _not_cached() -> LocalEntryNotFoundError:
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return LocalEntryNotFoundError(
            "Cannot find the requested files in the disk cache and outgoing traffic has been disabled. "
            "To enable hf.co look-ups and downloads online, set 'local_files_only' to False."
        )
    return LocalEntryNotFoundError(
        "An error happened while trying to locate the file on the Hub and we cannot find the requested files in the "
        "local cache. Please check your connection and try again or make sure your Internet connection is on."
    )


def _needed(name: str, folder: Path, file: str) -> Path:
    path = folder / file
    if not path.is_file():
        raise OSError(f"{name} does not appear to have a file named {file}.")
    return path


def _copy_code(model: Model) -> None:
    """Remote code is copied below HF_HOME before it is imported, so that folder has to be writable."""
    modules = Path(os.environ.get("HF_MODULES_CACHE") or hf_home() / "modules")
    target = modules / "transformers_modules" / model.folder.name.replace("-", "_hyphen_")
    target.mkdir(parents=True, exist_ok=True)
    for package in (target.parent, target):
        (package / "__init__.py").touch()
    for file in K3_CODE:
        (target / file).write_bytes((model.folder / file).read_bytes())


def check_weights(model: Model) -> int:
    """How many shards there are, after each one the index names was found and its header read."""
    index = model.folder / "model.safetensors.index.json"
    if not index.is_file():
        shards = sorted(path.name for path in model.folder.glob("*.safetensors"))
        if not shards:
            raise RuntimeError(f"Cannot find any model weights with `{model.name}`")
        for shard in shards:
            _read_header(model.folder / shard)
        return len(shards)
    weight_map: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    shards = sorted(set(weight_map.values()))
    missing = [shard for shard in shards if not (model.folder / shard).is_file()]
    if missing:
        shown = f"{missing[:3]}{'...' if len(missing) > 3 else ''}"
        raise RuntimeError(f"Missing {len(missing)} file(s) from index {index.name}: {shown}")
    wanted: dict[str, set[str]] = {shard: set() for shard in shards}
    for tensor, shard in weight_map.items():
        wanted[shard].add(tensor)
    for shard in shards:
        absent = wanted[shard] - _read_header(model.folder / shard)
        if absent:
            raise KeyError(f"{min(absent)} is not in {shard}")
    return len(shards)


def _read_header(path: Path) -> set[str]:
    """The tensor names of one shard; the same complaints that the safetensors library has."""
    problem = "Error while deserializing header: "
    size = path.stat().st_size
    if size < 8:
        raise SafetensorError(problem + "header too small")
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _MAX_HEADER_BYTES:
            raise SafetensorError(problem + "header too large")
        if length > size - 8:
            raise SafetensorError(problem + "invalid header length")
        try:
            header: dict[str, Any] = json.loads(file.read(length))
        except ValueError:
            raise SafetensorError(problem + "invalid header deserialization") from None
    header.pop("__metadata__", None)
    end = 0
    for entry in sorted(header.values(), key=lambda entry: int(entry["data_offsets"][0])):
        if entry["data_offsets"][0] != end:
            raise SafetensorError(problem + "invalid offset")
        end = entry["data_offsets"][1]
    if 8 + length + end != size:
        raise SafetensorError(problem + "incomplete metadata, file not fully covered")
    return set(header)
