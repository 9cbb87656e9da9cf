"""How a report of `verify-shards` reads: its one word, its table, its lines, and its JSON."""

from dataclasses import replace

from k3deploy.domain.errors import NodeUnreachable
from k3deploy.domain.names import Commit, NodeName, Sha256
from k3deploy.domain.repository_report import RepositoryReport
from k3deploy.domain.shard_report import NodeReport, ShardReport
from k3deploy.domain.weights import Manifest, ManifestFile
from k3deploy.domain.weights_found import FileFault

FILES = tuple(ManifestFile(f"f{n}.safetensors", 1_000_000_000, Sha256("a" * 64), "b" * 40) for n in range(30))
MANIFEST = Manifest("lab/model", Commit("c" * 40), FILES)
DRAFT = Manifest("lab/draft", Commit("d" * 40), FILES[:1])
MEND = "k3deploy verify-shards --repair"
NOON = 1_785_222_000.0  # 2026-07-28 07:00 UTC
GOOD = RepositoryReport(MANIFEST, "full", held_commit=MANIFEST.commit, hashed=30, seconds=8.0)
AWAY = NodeReport(NodeName("c"), error=NodeUnreachable(what="c: no answer", fix="look"))


def _fault(number: int, kind: str = "digest") -> FileFault:
    return FileFault(f"f{number}.safetensors", kind, "x", "y")


def _node(name: str, *parts: RepositoryReport) -> NodeReport:
    return NodeReport(NodeName(name), parts)


def _report(*nodes: NodeReport, manifests: tuple[Manifest, ...] = (MANIFEST,)) -> ShardReport:
    return ShardReport(manifests, "the hub", nodes, MEND)


def test_a_report_is_as_bad_as_its_worst_node() -> None:
    good = _node("a", GOOD)
    short = _node("b", replace(GOOD, faults=(_fault(1, "size"),)))
    wrong = _node("d", replace(GOOD, faults=(_fault(1, "size"), _fault(2))))
    for nodes, code, headline in (
        ([good], 0, "COMPLETE: all 30.00 GB are right, every byte hashed now"),
        ([good, good], 0, "COMPLETE: all 2 nodes hold the same 30.00 GB, every byte hashed now"),
        ([good, AWAY], 3, "UNKNOWN: could not look at c"),
        ([good, AWAY, short], 4, "INCOMPLETE: b"),
        ([good, AWAY, short, wrong], 4, "CORRUPT: b, d"),
    ):
        report = _report(*nodes)
        assert (int(report.exit_code), report.headline) == (code, headline)
        assert report.as_dict()["exit_code"] == code


def test_a_quick_look_is_never_complete() -> None:
    report = _report(_node("a", replace(GOOD, level="quick", hashed=0)))
    assert report.headline == (
        "QUICK-OK: names, sizes, links, headers, index and small files are right (30.00 GB), shards were not read"
    )
    assert int(report.exit_code) == 0
    # Not even next to a node that was looked at in full.
    assert _report(_node("a", GOOD), *report.nodes).finding == "QUICK-OK"


def test_what_was_hashed_earlier_is_told_apart_and_since_when() -> None:
    older, newer = (replace(GOOD, hashed=2, known=28, known_at=at) for at in (NOON, NOON + 86_400))
    assert _report(_node("a", older), _node("b", newer)).headline == (
        "COMPLETE: all 2 nodes hold the same 30.00 GB, 4 files hashed now, 56 unchanged since their proof "
        "(2026-07-28 07:00 UTC or later)"
    )


def test_the_table_has_a_row_for_each_repository_of_a_node() -> None:
    bad = replace(GOOD, faults=(_fault(1), FileFault("f1.safetensors", "header", "x", "y")), known=3)
    other = replace(GOOD, manifest=DRAFT, held_commit="e" * 40, faults=(_fault(0, "missing"),), hashed=0)
    rows = _report(_node("a", bad, other), AWAY, manifests=(MANIFEST, DRAFT)).rows()
    assert rows == [
        ("a", "29/30", "29.00 GB of 30.00 GB", "c" * 12, "full", "CORRUPT", "30", "3", "8.0 s"),
        ("  + lab/draft", "0/1", "0 B of 1.00 GB", "e" * 12, "full", "INCOMPLETE", "0", "0", "8.0 s"),
        ("c", "-", "-", "-", "-", "UNKNOWN", "-", "-", "-"),
    ]


def test_nodes_that_hold_another_commit_are_named() -> None:
    absent = tuple(_fault(n, "missing") for n in range(30))
    there, empty = (replace(GOOD, held_commit=commit, faults=absent) for commit in ("e" * 40, None))
    report = _report(_node("a", GOOD), _node("b", there), _node("d", empty))
    assert report.notes() == [
        f"commits differ: b holds {'e' * 40}",
        f"b: BAD none of the 30 files of {'c' * 40} is there; commit {'e' * 40} is there instead",
        f"d: BAD none of the 30 files of {'c' * 40} is there",
        f"next: {MEND}",
    ]
    assert not report.as_dict()["same_commit"]


def test_many_bad_files_are_cut_short_in_words_and_whole_in_json() -> None:
    report = _report(_node("a", replace(GOOD, faults=tuple(_fault(n) for n in range(25)))))
    assert len(report.notes()) == 22  # 20 files, how many more, what to do
    assert report.notes()[0] == "a: BAD f0.safetensors: digest, found x..., wanted y..."
    assert report.notes()[20] == "a: BAD and 5 more: digest (--output json has them all)"
    assert len(report.as_dict()["nodes"][0]["repositories"][0]["faults"]) == 25


def test_a_file_that_was_wrong_before_points_at_the_node() -> None:
    report = _report(_node("a", replace(GOOD, faults=(_fault(1),), mismatches={"f1.safetensors": 2})))
    assert "a: f1.safetensors was wrong 2 times: suspect this node's disk or memory" in report.notes()


def test_what_a_repair_is_for_fits_on_a_line() -> None:
    many = replace(GOOD, faults=tuple(_fault(n) for n in range(5)), leftovers=2)
    assert _report(_node("a", many), _node("b", GOOD)).to_repair == (
        "a: f0.safetensors, f1.safetensors, f2.safetensors and 2 more; 2 leftovers of killed downloads",
    )


RESULT = {
    "level": "resume",
    "faults": [],
    "partials": [],
    "quarantined": [],
    "other_commits": [],
    "main_commit": MANIFEST.commit,
    "forgotten": "",
    "hashed": 30,
    "hashed_bytes": 30_000_000_000,
    "known": 0,
    "known_at": None,
    "seconds": 8.0,
    "mismatches": {},
}


def test_a_revision_that_is_broken_on_the_hub_is_not_fetched_again() -> None:
    report = _report(_node("a", replace(GOOD, faults=(_fault(1, "tensors"), _fault(2, "index")))))
    assert (report.finding, report.needs_repair) == ("CORRUPT", ())
    assert report.notes()[-1] == (
        "next: take another revision: the files are as the Hub has them, and do not go together"
    )
    # With the wrong bytes in hand, or without a look at them, it may be mended.
    for part in (
        replace(GOOD, faults=(_fault(1, "tensors"), _fault(2))),
        replace(GOOD, faults=(_fault(1, "tensors"),), level="quick"),
    ):
        assert _report(_node("a", part)).next_step == MEND


class TestParse:
    def _parse(self, *, needs_ref: bool = True, **more: object) -> RepositoryReport:
        return RepositoryReport.parse({**RESULT, **more}, MANIFEST, needs_ref=needs_ref)

    def test_a_name_that_means_another_commit_is_a_fault_where_it_is_used(self) -> None:
        (fault,) = self._parse(main_commit="e" * 40).faults
        assert fault == FileFault("refs/main", "ref", "e" * 40, MANIFEST.commit)
        assert self._parse(main_commit="e" * 40).finding == "INCOMPLETE"
        assert self._parse(main_commit="e" * 40, needs_ref=False).finding == "COMPLETE"

    def test_a_name_that_means_nothing_yet_is_said(self) -> None:
        report = self._parse(main_commit=None)
        assert report.finding == "COMPLETE"
        assert report.notes == ("refs/main is absent: an offline launch by name would not find the model",)

    def test_a_proof_that_could_not_be_kept_is_said(self) -> None:
        (note,) = self._parse(forgotten="what was proved of the weights cannot be kept: Read-only file system").notes
        assert note.endswith("Read-only file system; the next look hashes all of it again")
