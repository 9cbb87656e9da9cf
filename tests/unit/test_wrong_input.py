"""Wrong profiles, nodes files and arguments, each with the exact words a person reads. Cases: tests/data/wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from k3deploy.adapters import profiles
from tests.cli_run import k3deploy

_DATA = Path(__file__).parents[1] / "data" / "wrong"
_CASES = [
    (file.stem, case) for file in sorted(_DATA.glob("*.yaml")) for case in yaml.safe_load(file.read_text("utf-8"))
]


def _argv(case: dict[str, Any], folder: Path) -> list[str]:
    """Write what the case brings; by default the profile is validated, or rendered when there are nodes."""
    for name, text in case.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    profile = folder / "bad.yaml"
    if "profile" in case:
        profile.write_text(case["profile"], "utf-8")
    if "profile_hex" in case:
        profile.write_bytes(bytes.fromhex(case["profile_hex"]))
    if "profile_bytes" in case:
        profile.write_bytes(b"#" * case["profile_bytes"])
    if "nodes" in case:
        (folder / "nodes.yaml").write_text(case["nodes"], "utf-8")
        argv = ["render", "--profile", "bad.yaml" if profile.exists() else "h100x32"]
    else:
        argv = ["profiles", "validate", "bad.yaml"]
    return [str(word) for word in case.get("argv", argv)]


@pytest.mark.parametrize(("file", "case"), _CASES, ids=[f"{file}: {case['name']}" for file, case in _CASES])
def test_message(file: str, case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    shipped = next(place.folder for place in profiles.places() if place.title == "shipped")
    work = tmp_path / "work"
    work.mkdir()

    said = k3deploy(_argv(case, work), work)

    text = said.stderr.replace(str(tmp_path / "settings" / "k3deploy" / "profiles"), "USER")
    text = text.replace(str(shipped), "SHIPPED").replace(str(work), "HERE")
    assert text == case["message"]
    assert said.exit_code == case.get("exit", 1)
    assert said.stdout == ""


def test_there_are_enough_cases_and_no_two_alike() -> None:
    names = [f"{file}: {case['name']}" for file, case in _CASES]
    assert len(names) >= 40
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("words", [("--output", "json"), ("--output=json",), ("-o", "json"), ("-ojson",)])
def test_an_error_is_json_however_json_is_asked_for(words: tuple[str, ...], tmp_path: Path) -> None:
    said = k3deploy(["render", "--profile", "h100-32", *words], tmp_path)
    assert json.loads(said.stdout)["error"]["code"] == "K3-PROFILE-001"
