"""What stays in memory: the choice by hand-computed cases, the kernel's own word on real files, and the phase."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from k3deploy.adapters.profiles import load_profile
from k3deploy.contracts import Services
from k3deploy.domain.errors import NodeTimeout, ProgramFailed
from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.page_cache import CacheChoice
from k3deploy.phases.launch import LaunchPhase
from k3deploy.phases.weights_warm import WAIT_S, WeightsWarmPhase
from k3deploy.remote.page_cache import Span, absent_spans, cached_bytes
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.weights_warm import _Reading, _Window, main
from k3deploy.runner.unit import Ended
from k3deploy.testing import FakeSurvey
from tests.unit import engine_world
from tests.unit.engine_world import run_phase, steps
from tests.unit.remote_program import run, section
from tests.unit.weights_world import Cache, World, drop, empty_cache, world

__all__ = ["world"]

MIB = 1 << 20
K3_BYTES = 1_560_936_091_448
# 8 ranks of 12 GB each.
ENGINE_BYTES = 96_000_000_000
ENOUGH_BYTES = 1_656_936_091_448
KEEP = "keep 1.6 TB in the page cache (1.7 TB of memory free): first start 5-20 min instead of 59"
PAST = (
    "read past the page cache (1.6 TB and 96.0 GB for the engine do not fit into 1.1 TB of memory): "
    "first start 59 min, where more memory would make it 5-20"
)
SILENT = (
    "read past the page cache (the node does not say how much memory is free): "
    "first start 59 min, where more memory would make it 5-20"
)


class TestTheChoice:
    @pytest.mark.parametrize(
        ("available_bytes", "keeps", "sentence"),
        [
            (ENOUGH_BYTES, True, KEEP),
            (1_100_000_000_000, False, PAST),
            (
                None,
                False,
                SILENT,
            ),
        ],
    )
    def test_the_weights_are_kept_where_they_fit_beside_the_engine(
        self, available_bytes: int | None, keeps: bool, sentence: str
    ) -> None:
        choice = CacheChoice(K3_BYTES, ENGINE_BYTES, available_bytes)
        assert (choice.keeps, choice.sentence) == (keeps, sentence)

    def test_a_cache_that_is_a_byte_too_small_is_not_filled(self) -> None:
        assert not CacheChoice(K3_BYTES, ENGINE_BYTES, ENOUGH_BYTES - 1).keeps

    def test_the_minutes_are_in_proportion_and_left_out_where_there_are_none(self) -> None:
        # A fifth of the measured checkpoint: 11.8 minutes cold, 1 to 4 warm.
        assert CacheChoice(312_187_218_290, 0, 2 * 10**12).sentence == (
            "keep 312.2 GB in the page cache (2.0 TB of memory free): first start 1-4 min instead of 12"
        )
        assert CacheChoice(9_600_000, 0, 22 * 10**9).sentence == (
            "keep 9.6 MB in the page cache (22.0 GB of memory free)"
        )

    def test_a_node_of_the_shipped_profile(self) -> None:
        facts = NodeFacts.parse(engine_world.facts_body("10.0.0.1", boot_id="b", used_mib=0, processes=[]))
        choice = CacheChoice.of(facts, load_profile("h100x32"))
        assert choice == CacheChoice(K3_BYTES, ENGINE_BYTES, 2**40)


class TestTheKernelsWord:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "file"
        path.write_bytes(os.urandom(8 * MIB + 123))
        return path

    def test_what_was_just_written_is_there_and_what_is_dropped_is_not(self, path: Path) -> None:
        assert cached_bytes(str(path)) == 8 * MIB + 123
        drop(path)
        assert cached_bytes(str(path)) == 0

    def test_the_stretches_that_are_absent(self, path: Path) -> None:
        drop(path)
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
            os.pread(file.fileno(), MIB, 2 * MIB)
            assert list(absent_spans(file.fileno(), Span(0, 8 * MIB + 123))) == [
                Span(0, 2 * MIB),
                Span(3 * MIB, 5 * MIB + 123),
            ]
            assert list(absent_spans(file.fileno(), Span(MIB, MIB))) == [Span(MIB, MIB)]
            assert list(absent_spans(file.fileno(), Span(2 * MIB, MIB))) == []

    def test_an_empty_file_is_no_reason_to_fail(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        assert cached_bytes(str(tmp_path / "empty")) == 0


class TestReadingThemIn:
    @pytest.fixture
    def cache(self, world: World, tmp_path: Path) -> Cache:
        cache = empty_cache(world, tmp_path).fill()
        for blob in cache.blobs.iterdir():
            drop(blob)
        return cache

    def args(self, cache: Cache) -> dict[str, Any]:
        return {"hf_home": str(cache.hf_home), "repositories": [[cache.manifest["repo"], cache.manifest["commit"]]]}

    def test_all_of_it_is_in_memory_afterwards_and_nothing_is_read_twice(self, cache: Cache) -> None:
        total = sum(file["size"] for file in cache.manifest["files"])
        assert section("page_cache", **self.args(cache)) == {"bytes": total, "cached_bytes": 0}
        first = run("weights_warm", self.args(cache))
        assert (first.result["bytes"], first.result["read_bytes"]) == (total, total)
        assert first.progress[-1] == {"message": "reading weights into memory", "done": total, "total": total}
        assert section("page_cache", **self.args(cache)) == {"bytes": total, "cached_bytes": total}
        assert run("weights_warm", self.args(cache)).result["read_bytes"] == 0

    def test_only_what_is_absent_is_read(self, cache: Cache) -> None:
        there = cache.blob("model-00003-of-000012.safetensors")
        size = len(there.read_bytes())
        done = run("weights_warm", self.args(cache)).result
        assert done["read_bytes"] == done["bytes"] - size

    def test_without_a_snapshot_there_is_nothing(self, tmp_path: Path) -> None:
        args = {"hf_home": str(tmp_path), "repositories": [["a/b", "c" * 40]]}
        assert section("page_cache", **args) == {"bytes": 0, "cached_bytes": 0}
        assert run("weights_warm", args).result["bytes"] == 0

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(Refusal, match=f"{tmp_path}/gone cannot be read"):
            _Reading().take(_Window(f"{tmp_path}/gone", Span(0, 10)))

    def test_who_is_stopped_reads_no_further(self, cache: Cache) -> None:
        class Gone(BaseException):
            pass

        def gone(word: Mapping[str, Any]) -> None:
            raise Gone

        with pytest.raises(Gone):
            main(self.args(cache), gone)


class TestThePhase:
    """On four nodes of the shipped profile, with memory for the weights unless a test says otherwise."""

    available_bytes = ENOUGH_BYTES
    cached_bytes = 0

    @pytest.fixture
    def w(self) -> engine_world.World:
        w = engine_world.world()
        manifest = {"repo": "moonshotai/Kimi-K3", "commit": "a" * 40, "files": []}
        w.svc.pins.settle("manifest", {"manifests": [manifest]})
        for node in w.nodes.each():
            machine = w[node.name]
            self.answer(w.svc, "facts", node.name, self.with_memory(machine.facts))
            self.answer(w.svc, "page_cache", node.name, lambda: {"bytes": 10**12, "cached_bytes": self.cached_bytes})
            self.answer(w.svc, "job", node.name, lambda: {"state": "absent"})
            node.on_program("job_start", {"state": "running"})
            node.on_program("job_watch", self.read)
        return w

    def answer(self, svc: Services, name: str, node: str, tell: Callable[[], Mapping[str, Any]]) -> None:
        assert isinstance(svc.survey, FakeSurvey)
        svc.survey.on(name, lambda _question: tell(), node=node)

    def with_memory(self, facts: Callable[[], Mapping[str, Any]]) -> Callable[[], Mapping[str, Any]]:
        return lambda: {**facts(), "memory_available_bytes": self.available_bytes}

    def read(self, _program: object) -> Mapping[str, Any]:
        self.cached_bytes = 10**12
        return {"bytes": 10**12, "read_bytes": 10**12, "seconds": 1.0}

    def test_what_is_absent_is_read_once_in_a_machines_life(self, w: engine_world.World) -> None:
        self.cached_bytes = 600_000_000_000
        phase = WeightsWarmPhase(w.site)
        (step,) = phase.plan(phase.targets()[0], phase.probe(w.svc, phase.targets()[0])).steps
        assert (step.title, step.detail) == ("read about 0.4 of 1.0 TB into memory", KEEP)
        assert run_phase(w, phase)[0][0] is Ended.CHANGED
        start = w.nodes["gpu-01"].programs[0]
        assert (start.args["user"], start.args["entry"]) == ("root", "weights_warm")
        assert start.args["args"]["repositories"] == [["moonshotai/Kimi-K3", w.profile.model.revision]]
        assert w.nodes["gpu-01"].programs[1].timeout_s == WAIT_S
        # Memory that was given to something else meanwhile does not make an `up` read again.
        self.cached_bytes = 0
        assert run_phase(w, phase)[0] == [Ended.UNCHANGED] * 4
        w["gpu-01"].boot_id = "boot-2"
        assert run_phase(w, phase)[0] == [Ended.CHANGED, *[Ended.UNCHANGED] * 3]

    @pytest.mark.parametrize(
        ("available_bytes", "cached_bytes", "reason"),
        [
            (1_100_000_000_000, 0, PAST),
            (ENOUGH_BYTES, 10**12, f"all of it is in memory; {KEEP}"),
        ],
    )
    def test_nothing_is_read_where_that_is_of_no_use(
        self, w: engine_world.World, available_bytes: int, cached_bytes: int, reason: str
    ) -> None:
        self.available_bytes, self.cached_bytes = available_bytes, cached_bytes
        phase = WeightsWarmPhase(w.site)
        assert phase.plan(phase.targets()[0], phase.probe(w.svc, phase.targets()[0])).reason == reason
        assert run_phase(w, phase)[0] == [Ended.UNCHANGED] * 4
        assert phase.verify(w.svc, phase.targets()[0]).summary == reason

    def test_an_engine_that_runs_has_its_weights(self, w: engine_world.World) -> None:
        run_phase(w, LaunchPhase(w.site))
        phase = WeightsWarmPhase(w.site)
        ended, recorder = run_phase(w, phase)
        assert (ended, steps(recorder)) == ([Ended.UNCHANGED] * 4, [])
        assert phase.verify(w.svc, phase.targets()[0]).summary == "the engine runs already, and has its weights"

    def test_a_slow_disk_does_not_keep_the_engine_waiting(self, w: engine_world.World) -> None:
        w.nodes["gpu-02"].on_program("job_watch", NodeTimeout(what="no end within 600 s", fix="wait"))
        self.answer(w.svc, "job", "gpu-02", lambda: {"state": "running"})
        phase = WeightsWarmPhase(w.site)
        for target in phase.targets():
            self.cached_bytes = 610_000_000_000
            for step in phase.plan(target, phase.probe(w.svc, target)).steps:
                step.action.perform(w.svc, lambda *_a, **_k: None)
            if target.name == "gpu-02":
                verdict = phase.verify(w.svc, target)
                assert (verdict.is_ok, verdict.summary) == (
                    True,
                    "61 % of 1000.00 GB in memory, the rest is being read",
                )
                assert "warnings" not in verdict.evidence

    def test_memory_that_went_elsewhere_is_told_and_stops_nobody(self, w: engine_world.World) -> None:
        self.cached_bytes = 610_000_000_000
        verdict = WeightsWarmPhase(w.site).verify(w.svc, WeightsWarmPhase(w.site).targets()[0])
        assert (verdict.is_ok, verdict.summary) == (True, "61 % of 1000.00 GB in memory")
        assert verdict.evidence["warnings"] == ["memory was given to something else: the engine reads the rest"]

    def test_a_disk_that_does_not_give_a_file_stops_the_node(self, w: engine_world.World) -> None:
        for node in w.nodes.each():
            node.on_program("job_watch", ProgramFailed(what="/x cannot be read", fix="look"))
        with pytest.raises(ProgramFailed):
            run_phase(w, WeightsWarmPhase(w.site))

    def test_before_there_are_weights_nothing_is_to_be_read(self, w: engine_world.World) -> None:
        self.answer(w.svc, "page_cache", "gpu-01", lambda: {"bytes": 0, "cached_bytes": 0})
        verdict = WeightsWarmPhase(w.site).verify(w.svc, WeightsWarmPhase(w.site).targets()[0])
        assert (verdict.is_ok, verdict.summary) == (True, "there are no weights yet")

    def test_a_bare_node_is_asked_nothing_about_weights(self) -> None:
        w = engine_world.world()
        phase = WeightsWarmPhase(w.site)
        target = phase.targets()[0]
        assert [q.section for q in phase.questions(w.svc, target)[target.nodes[0]]] == ["facts", "container"]
