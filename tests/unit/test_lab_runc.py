"""The node's runc wrapper: takes out what a small VM's kernel refuses, and nothing else."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

WRAPPER = Path(__file__).parents[1] / "lab" / "node_files" / "lab-runc"
PROCESS = {
    "args": ["sleep", "1"],
    "rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 2**64 - 1, "soft": 2**64 - 1}],
    "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"]},
    "oomScoreAdj": -500,
}
SOFTENED = {
    "args": ["sleep", "1"],
    "rlimits": [],
    "capabilities": {"bounding": ["CAP_CHOWN"], "effective": []},
    "oomScoreAdj": 0,
}


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """The wrapper with a runc that prints its arguments."""
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(stat.S_IRWXU)
    changed = tmp_path / "lab-runc"
    changed.write_text(WRAPPER.read_text().replace("/usr/sbin/runc", str(runc)))
    return changed


def run(wrapper: Path, *argv: str) -> str:
    done = subprocess.run([sys.executable, str(wrapper), *argv], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("option", [["--bundle", "{}"], ["--bundle={}"], ["-b", "{}"]])
def test_create(wrapper: Path, tmp_path: Path, option: list[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"process": PROCESS, "hostname": "h"}))
    argv = ["--root", "/r", "create", *(word.format(tmp_path) for word in option), "id"]
    assert run(wrapper, *argv) == " ".join(argv)
    assert json.loads(config.read_text()) == {"process": SOFTENED, "hostname": "h"}


def test_exec(wrapper: Path, tmp_path: Path) -> None:
    process = tmp_path / "process.json"
    process.write_text(json.dumps(PROCESS))
    run(wrapper, "exec", "--process", str(process), "id")
    assert json.loads(process.read_text()) == SOFTENED


def test_other_verbs_pass_through(wrapper: Path) -> None:
    assert run(wrapper, "state", "id") == "state id"
