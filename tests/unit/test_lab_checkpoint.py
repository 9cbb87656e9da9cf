"""The miniature checkpoints: names, shapes and figures of the real one, in the same bytes each time."""

import hashlib
import json
import struct
from pathlib import Path

import pytest

from tests.lab import checkpoint

SMALL_FILES = {
    "config.json", "generation_config.json", "tokenizer_config.json", "preprocessor_config.json", "tiktoken.model",
    "README.md", "LICENSE", ".gitattributes", "model.safetensors.index.json", "configuration_kimi_k3.py",
    "modeling_kimi_k3.py", "modeling_kimi_linear.py", "tokenization_kimi.py", "encoding_k3.py", "kimi_k3_processor.py",
    "kimi_k3_vision_processing.py", "media_utils.py",
}  # fmt: skip


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mini")
    checkpoint.build(root, "mini")
    return root / checkpoint.REPO


def header(path: Path) -> tuple[int, dict[str, dict[str, list[int]]]]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        found = json.loads(file.read(length))
    found.pop("__metadata__")
    return 8 + length, found


def test_has_the_real_ones_file_names(mini: Path) -> None:
    names = {path.name for path in mini.iterdir()}
    shards = {f"model-{number:05d}-of-000096.safetensors" for number in range(1, 97)}
    assert names == SMALL_FILES | shards


def test_index_and_shards_agree(mini: Path) -> None:
    index = json.loads((mini / "model.safetensors.index.json").read_text())
    found: dict[str, str] = {}
    total = 0
    for path in mini.glob("*.safetensors"):
        start, tensors = header(path)
        end = 0
        for tensor in sorted(tensors.values(), key=lambda tensor: tensor["data_offsets"][0]):
            assert tensor["data_offsets"][0] == end
            end = tensor["data_offsets"][1]
            assert end - tensor["data_offsets"][0] == tensor["shape"][0] * tensor["shape"][1]
        assert start + end == path.stat().st_size
        found |= dict.fromkeys(tensors, path.name)
        total += end
    assert index["weight_map"] == found
    assert index["metadata"]["total_size"] == total


def test_experts_of_a_layer_are_in_the_next_shard(mini: Path) -> None:
    weight_map = json.loads((mini / "model.safetensors.index.json").read_text())["weight_map"]
    for layer, shard in ((1, 2), (92, 93)):
        name = f"language_model.model.layers.{layer}.block_sparse_moe.experts.0.w1.weight_packed"
        assert weight_map[name] == f"model-{shard:05d}-of-000096.safetensors"
    assert [name for name, shard in weight_map.items() if name.startswith("vision_tower")] != []
    assert {shard for name, shard in weight_map.items() if name.startswith("vision_tower")} == {
        "model-00096-of-000096.safetensors"
    }


def test_configuration_has_the_published_numbers(mini: Path) -> None:
    config = json.loads((mini / "config.json").read_text())
    assert config["architectures"] == ["KimiK3ForConditionalGeneration"]
    text = config["text_config"]
    assert (text["num_hidden_layers"], text["hidden_size"], text["num_attention_heads"]) == (93, 7168, 96)
    assert (text["num_experts"], text["vocab_size"], text["max_position_embeddings"]) == (896, 163_840, 1_048_576)
    for name in json.loads((mini / "tokenizer_config.json").read_text())["auto_map"]["AutoTokenizer"][:1]:
        assert (mini / f"{name.split('.')[0]}.py").is_file()


@pytest.mark.parametrize("variant", ["mini", "small12", "sparse17g"])
def test_a_build_is_what_the_list_expects(tmp_path: Path, variant: str) -> None:
    commit = checkpoint.build(tmp_path, variant)
    expected = checkpoint.expected(variant)
    assert commit == expected.commit
    assert checkpoint.built(tmp_path) == expected
    assert checkpoint.built(tmp_path, checkpoint.DRAFT_REPO) == checkpoint.expected(variant, checkpoint.DRAFT_REPO)
    sizes = [path.stat().st_size for path in (tmp_path / checkpoint.REPO).iterdir()]
    assert (len(sizes), sum(sizes)) == (expected.files, expected.total_bytes)


def test_sizes_are_what_their_names_say() -> None:
    assert {checkpoint.expected(variant).shards for variant in ("mini", "large", "bench")} == {96}
    assert 9_000_000 < checkpoint.expected("mini").total_bytes < 11_000_000
    assert 390_000_000 < checkpoint.expected("large").total_bytes < 410_000_000
    assert 1_190_000_000 < checkpoint.expected("bench").total_bytes < 1_210_000_000
    assert 6_300_000_000 < checkpoint.expected("bench16").total_bytes < 6_500_000_000
    assert checkpoint.expected("small12").shards == 12
    assert checkpoint.expected("sparse17g").total_bytes > 17_000_000_000
    assert len({checkpoint.expected(variant).commit for variant in checkpoint.VARIANTS}) == len(checkpoint.VARIANTS)


def test_the_sparse_shard_takes_no_room(tmp_path: Path) -> None:
    checkpoint.build(tmp_path, "sparse17g")
    shard = tmp_path / checkpoint.REPO / "model-00001-of-000002.safetensors"
    assert shard.stat().st_size > 16_990_916_912
    assert shard.stat().st_blocks * 512 < 4 << 20


def test_bytes_are_the_same_each_time(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        checkpoint.build(tmp_path / name, "small12")
        folder = tmp_path / name / checkpoint.REPO
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()})
    assert digests[0] == digests[1]
    assert len(set(digests[0].values())) == len(digests[0])


def test_a_second_build_changes_nothing(tmp_path: Path) -> None:
    checkpoint.build(tmp_path, "small12")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    checkpoint.build(tmp_path, "small12")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
