"""The stand-in engine finds a model's files, or fails, as the real one does."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import checkpoint
from tests.lab.engine.model_files import LocalEntryNotFoundError, SafetensorError, check_weights, find_model
from tests.lab.engine_process import lay_out_cache

FIRST = "model-00001-of-000012.safetensors"


@pytest.fixture(scope="module")
def hub_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    checkpoint.build(root, "small12")
    return root


@pytest.fixture
def snapshot(tmp_path: Path, hub_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("HF_HUB_CACHE", "HF_MODULES_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return lay_out_cache(tmp_path, hub_root)


def test_finds_a_model_by_name_and_copies_its_code(snapshot: Path, tmp_path: Path) -> None:
    model = find_model(checkpoint.REPO, None, trusts_code=True)
    assert model.folder == snapshot
    assert (model.architecture, model.context_len) == ("KimiK3ForConditionalGeneration", 1_048_576)
    assert check_weights(model) == 12
    copied = tmp_path / "modules" / "transformers_modules" / snapshot.name
    assert len(list(copied.glob("*.py"))) == 9


def test_finds_a_model_by_folder_and_by_commit(snapshot: Path) -> None:
    (snapshot.parent.parent / "refs" / "main").unlink()
    assert find_model(str(snapshot), None, trusts_code=True).folder == snapshot
    assert find_model(checkpoint.REPO, snapshot.name, trusts_code=True).folder == snapshot


def test_by_name_needs_the_reference(snapshot: Path) -> None:
    (snapshot.parent.parent / "refs" / "main").unlink()
    with pytest.raises(LocalEntryNotFoundError, match="outgoing traffic has been disabled"):
        find_model(checkpoint.REPO, None, trusts_code=True)


def test_needs_trust(snapshot: Path) -> None:
    with pytest.raises(ValueError, match="contains custom code which must be executed"):
        find_model(checkpoint.REPO, None, trusts_code=False)


@pytest.mark.parametrize("name", ["config.json", "tiktoken.model", "encoding_k3.py", "modeling_kimi_linear.py"])
def test_each_small_file_is_needed(snapshot: Path, name: str) -> None:
    (snapshot / name).unlink()
    with pytest.raises(OSError, match=f"does not appear to have a file named {name}"):
        find_model(checkpoint.REPO, None, trusts_code=True)


def test_an_unknown_architecture_is_refused(snapshot: Path) -> None:
    (snapshot / "config.json").write_text(json.dumps({"architectures": ["Llama"]}))
    with pytest.raises(ValueError, match="are not supported for now"):
        find_model(checkpoint.REPO, None, trusts_code=True)


def _drop(path: Path) -> None:
    path.unlink()


def _dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _wrong_length(path: Path) -> None:
    path.write_bytes((2**40).to_bytes(8, "little") + path.read_bytes()[8:])


def _not_json(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:8] + b"\0" + data[9:])


def _another_shard(path: Path) -> None:
    path.write_bytes((path.parent / FIRST.replace("00001-", "00002-")).read_bytes())


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (_drop, RuntimeError, "Missing 1 file.s. from index model.safetensors.index.json"),
        (_dangle, RuntimeError, "Missing 1 file.s. from index model.safetensors.index.json"),
        (_cut, SafetensorError, "incomplete metadata, file not fully covered"),
        (_empty, SafetensorError, "header too small"),
        (_wrong_length, SafetensorError, "header too large"),
        (_not_json, SafetensorError, "invalid header deserialization"),
        (_another_shard, KeyError, f"is not in {FIRST}"),
    ],
)
def test_damaged_weights(snapshot: Path, damage: Callable[[Path], None], error: type[Exception], message: str) -> None:
    damage(snapshot / FIRST)
    model = find_model(checkpoint.REPO, None, trusts_code=True)
    with pytest.raises(error, match=message):
        check_weights(model)
