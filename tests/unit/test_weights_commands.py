"""`verify-shards` and `wheelhouse` as they are typed: what they refuse, their exit codes, and how a report reads."""

import json
import os
from pathlib import Path

import pytest

from k3deploy.cli.app import run
from k3deploy.domain.errors import NodeUnreachable
from k3deploy.domain.names import Commit, NodeName, Sha256
from k3deploy.domain.shard_report import NodeReport, ShardReport
from k3deploy.domain.weights import Manifest, ManifestFile
from k3deploy.domain.weights_found import FileFault

NODES = "nodes:\n" + "".join(f"  - {{name: gpu-0{n}, address: 10.9.9.{n}}}\n" for n in range(1, 5))
FILES = tuple(ManifestFile(f"f{n}", 1_000_000_000, Sha256("a" * 64), "b" * 40) for n in range(30))
MANIFEST = Manifest("lab/model", Commit("c" * 40), FILES)


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


def _fault(number: int, kind: str = "digest") -> FileFault:
    return FileFault(f"f{number}", kind, "x", "y")


def _report(*nodes: NodeReport, is_full: bool = True) -> ShardReport:
    return ShardReport("h100x32", MANIFEST, is_full, nodes)


def test_a_report_is_as_bad_as_its_worst_node() -> None:
    good = NodeReport(NodeName("a"), hashed=30, proved=30)
    faulty = NodeReport(NodeName("b"), faults=(_fault(1),))
    away = NodeReport(NodeName("c"), error=NodeUnreachable(what="c: no answer", fix="look"))
    assert int(_report(good).exit_code) == 0
    assert int(_report(good, away).exit_code) == 3
    assert int(_report(good, away, faulty).exit_code) == 4
    assert _report(good, away, faulty).headline == "NOT RIGHT on b"
    assert _report(good, away).headline == "cannot tell: c"
    assert _report(good).headline == "COMPLETE: all 1 nodes hold the same 30.00 GB, every byte hashed now"


def test_many_bad_files_are_cut_short_in_words_and_whole_in_json() -> None:
    report = _report(NodeReport(NodeName("a"), faults=tuple(_fault(n) for n in range(25))))
    assert len(report.notes()) == 22  # 20 files, how many more, what to do
    assert report.notes()[20] == "a: BAD and 5 more: digest (--output json has them all)"
    assert len(report.as_dict()["nodes"][0]["faults"]) == 25


def test_what_was_only_looked_at_says_since_when_it_is_known() -> None:
    known = NodeReport(NodeName("a"), proved=30, proved_at=1_785_222_000.0)
    new = NodeReport(NodeName("b"))
    rows = _report(known, new, is_full=False).rows()
    assert rows[0][1:3] == (
        "sizes ok",
        "sizes and headers; 30 files untouched since they were hashed (2026-07-28 07:00 UTC)",
    )
    assert rows[1][1:3] == ("sizes ok", "sizes and headers")


def test_a_file_that_was_wrong_before_points_at_the_node() -> None:
    report = _report(NodeReport(NodeName("a"), faults=(_fault(1),), mismatches={"f1": 2}))
    assert "a: f1 was wrong 2 times: suspect this node's disk or memory" in report.notes()
