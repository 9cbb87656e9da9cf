"""`verify-shards` and `wheelhouse` as they are typed: what they refuse, and with which exit codes."""

import json
import os
from pathlib import Path

import pytest

from k3deploy.cli.app import run

NODES = "nodes:\n" + "".join(f"  - {{name: gpu-0{n}, address: 10.9.9.{n}}}\n" for n in range(1, 5))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("K3DEPLOY_STORE", raising=False)
    return tmp_path


def test_without_a_run_it_says_how_to_start_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "nodes.yaml").write_text(NODES)
    assert run(["verify-shards"]) == 2
    assert "there is no run yet on these nodes" in capsys.readouterr().err


def test_a_profile_and_a_run_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify-shards", "--profile", "h100x32", "--run-id", "x"]) == 2
    assert "--profile and --run-id exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--quick", "--repair"], "--quick and --repair exclude each other"),
        (["--quick", "--no-cache"], "--quick and --no-cache exclude each other"),
        (["--manifest", "m.json"], "--manifest goes with --local"),
        (["--local", ".", "--node", "gpu-01"], "--local and --node or --run-id exclude each other"),
    ],
)
def test_words_that_exclude_each_other(words: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify-shards", *words]) == 2
    assert what in capsys.readouterr().err


def test_without_a_live_run_nothing_is_repaired(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "nodes.yaml").write_text(NODES)
    assert run(["verify-shards", "--profile", "h100x32", "--repair"]) == 2
    said = capsys.readouterr().err
    assert "there is no live run on these nodes" in said
    assert "fix: k3deploy up --profile h100x32 --until weights-verify" in said


def test_a_profile_needs_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify-shards", "--profile", "h100x32"]) == 1
    assert "there is no nodes.yaml" in capsys.readouterr().err


def test_a_wheelhouse_without_an_index_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
    }.items():
        monkeypatch.setenv(name, value)
    assert run(["wheelhouse", "wheels", "--output", "json"]) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "K3-INDEX-001"
    assert "--wheelhouse DIR" in error["fix"]
    assert not (folder / "wheels").exists()
