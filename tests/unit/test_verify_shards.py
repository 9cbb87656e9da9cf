"""`verify-shards` over nodes: what it says, what it hashes, whom it leaves alone, and what its repair fetches."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from k3deploy.domain.errors import ExitCode, HubError, Interrupted, NodeUnreachable, UsageError
from k3deploy.domain.names import NodeName, PhaseName
from k3deploy.domain.proof_level import ProofLevel
from k3deploy.domain.steps import Target
from k3deploy.flows.verify import Look, chosen, repair_shards, verify_shards
from tests.lab.checkpoint import DRAFT_REPO
from tests.lab.hub import Hub
from tests.unit.runner_world import SetPhase
from tests.unit.runner_world import World as RunnerWorld
from tests.unit.weights_cluster import NAMES, ONE, Cluster, cluster, flip_bit, served, with_draft
from tests.unit.weights_world import world

__all__ = ["cluster", "served", "world"]


def _entries(cluster: Cluster) -> Sequence[str]:
    return [program.entry for node in cluster.nodes.by_name.values() for program in node.programs]


def _look(level: ProofLevel = ProofLevel.KNOWN, *nodes: NodeName, has_run: bool = True) -> Look:
    return Look(level, nodes or NAMES, "k3deploy verify-shards --repair", has_run=has_run)


class TestVerifyShards:
    @pytest.fixture
    def filled(self, cluster: Cluster) -> Cluster:
        """Both nodes see the folder of the first one."""
        cluster.cache(NAMES[0]).fill()
        return cluster

    def test_good_weights_on_all_nodes(self, filled: Cluster) -> None:
        report = verify_shards(filled.session(), _look(ProofLevel.ANEW))
        assert report.exit_code is ExitCode.DONE
        assert report.headline == "COMPLETE: all 2 nodes hold the same 1.26 MB, every byte hashed now"
        assert [part.hashed for node in report.nodes for part in node.repositories] == [29, 29]
        assert report.notes()[0] == "all 2 nodes hold the same commit"
        # Nothing was launched yet, and that is said.
        assert "refs/main is absent" in report.notes()[1]

    def test_what_was_proved_before_is_not_hashed_again(self, filled: Cluster) -> None:
        filled.cache(NAMES[0]).prove()
        (node,) = verify_shards(filled.session(), _look(ProofLevel.KNOWN, NAMES[1])).nodes
        assert [(part.hashed, part.known) for part in node.repositories] == [(0, 29)]

    def test_quick_never_says_complete(self, filled: Cluster) -> None:
        report = verify_shards(filled.session(), _look(ProofLevel.QUICK))
        assert report.exit_code is ExitCode.DONE
        assert report.headline == (
            "QUICK-OK: names, sizes, links, headers, index and small files are right (1.26 MB), shards were not read"
        )
        assert "COMPLETE" not in json.dumps(report.as_dict()) + str(report.rows()) + str(report.notes())

    def test_every_bad_file_is_named_and_the_exit_code_is_4(self, filled: Cluster) -> None:
        cache = filled.cache(NAMES[0])
        flip_bit(cache.blob(ONE))
        os.truncate(cache.blob("config.json"), 0)
        report = verify_shards(filled.session(), _look())
        assert report.exit_code is ExitCode.UNHEALTHY
        assert report.headline == "CORRUPT: gpu-01, gpu-02"
        (part,) = report.nodes[0].repositories
        assert {(fault.path, fault.kind) for fault in part.faults} == {(ONE, "digest"), ("config.json", "size")}
        assert "config.json: size, found 0 bytes" in "\n".join(report.notes())
        assert report.notes()[-1] == "next: k3deploy verify-shards --repair"

    def test_a_bit_flip_is_not_seen_by_quick_and_is_remembered_by_it_once_seen(self, filled: Cluster) -> None:
        flip_bit(filled.cache(NAMES[0]).blob(ONE))
        assert verify_shards(filled.session(), _look(ProofLevel.QUICK)).exit_code is ExitCode.DONE
        verify_shards(filled.session(), _look())
        assert verify_shards(filled.session(), _look(ProofLevel.QUICK)).exit_code is ExitCode.UNHEALTHY

    @pytest.mark.parametrize(("is_bad", "code"), [(False, ExitCode.FAILED), (True, ExitCode.UNHEALTHY)])
    def test_a_node_that_cannot_be_looked_at(self, filled: Cluster, is_bad: bool, code: ExitCode) -> None:
        away = NodeUnreachable(what="gpu-02: no answer", fix="look at the machine")
        filled.nodes[NAMES[1]].error = away
        if is_bad:
            flip_bit(filled.cache(NAMES[0]).blob(ONE))
        report = verify_shards(filled.session(), _look())
        assert report.exit_code is code
        assert [node.finding for node in report.nodes] == ["CORRUPT" if is_bad else "COMPLETE", "UNKNOWN"]
        assert "gpu-02: gpu-02: no answer" in report.notes()

    def test_only_the_nodes_that_are_named(self, filled: Cluster) -> None:
        filled.nodes[NAMES[1]].error = NodeUnreachable(what="gpu-02: no answer", fix="look at the machine")
        assert chosen(filled.session(), ()) == NAMES
        names = chosen(filled.session(), ["gpu-01"])
        assert [node.node for node in verify_shards(filled.session(), _look(ProofLevel.KNOWN, *names)).nodes] == [
            "gpu-01"
        ]
        with pytest.raises(UsageError, match="no node is called 'gpu-07'"):
            chosen(filled.session(), ["gpu-07"])

    def test_a_repair_fetches_what_is_bad_and_leaves_other_nodes_alone(self, cluster: Cluster, served: Hub) -> None:
        cluster.up()
        served.stats.reset()
        flip_bit(cluster.cache(NAMES[0]).blob(ONE))
        cluster.nodes[NAMES[1]].error = NodeUnreachable(what="gpu-02: must not be asked", fix="-")
        session, look = cluster.session(), _look(ProofLevel.KNOWN, NAMES[0])
        storage = SetPhase(PhaseName("storage"), RunnerWorld(), tuple(map(Target.node, NAMES)))
        report = verify_shards(session, look)
        mended = repair_shards(session, look, report, (storage, *cluster.on(NAMES[0]).phases))
        assert mended.exit_code is ExitCode.DONE
        assert mended.repaired == (f"gpu-01: {ONE}",)
        assert mended.notes() == [
            f"repaired: gpu-01: {ONE}",
            f"gpu-01: note: {cluster.cache(NAMES[0]).blob(ONE).name}.bad: 98.87 kB, a bad copy that was moved aside",
        ]
        assert set(served.stats.document()["files"]) == {ONE}

    def test_a_draft_is_looked_at_with_its_model(self, cluster: Cluster, served: Hub) -> None:
        both = with_draft(cluster, served)
        both.up()
        report = verify_shards(both.session(), _look(ProofLevel.ANEW, NAMES[0]))
        assert [part.hashed for part in report.nodes[0].repositories] == [29, 4]
        assert [row[0] for row in report.rows()] == ["gpu-01", f"  + {DRAFT_REPO}"]
        assert report.headline == "COMPLETE: all 1.32 MB are right, every byte hashed now"

    def test_on_a_shared_volume_one_node_reads_for_all(self, filled: Cluster) -> None:
        session = filled.session()
        weights = session.profile.weights.model_copy(update={"strategy": "shared"})
        session = replace(session, profile=session.profile.model_copy(update={"weights": weights}))
        report = verify_shards(session, _look(ProofLevel.ANEW))
        parts = [part for node in report.nodes for part in node.repositories]
        assert [(part.hashed, part.known) for part in parts] == [(29, 0), (0, 29)]

    def test_no_list_to_compare_with_is_an_error(self, filled: Cluster) -> None:
        filled.hub.error = HubError(what="the hub is away", fix="wait")
        with pytest.raises(HubError):
            verify_shards(filled.session(), _look())

    def test_an_empty_node_is_told_in_one_line_and_gets_no_job(self, cluster: Cluster) -> None:
        report = verify_shards(cluster.session(), _look())
        assert report.exit_code is ExitCode.UNHEALTHY
        commit = cluster.world.manifest["commit"]
        assert report.notes() == [
            *(f"{node}: BAD none of the 29 files of {commit} is there" for node in NAMES),
            "next: k3deploy verify-shards --repair",
        ]
        assert "job_start" not in _entries(cluster)

    def test_without_a_run_nothing_is_left_on_the_nodes(self, filled: Cluster) -> None:
        verify_shards(filled.session(), _look(has_run=False))
        assert not (filled.mounts / NAMES[0] / "k3deploy").exists()

    def test_ctrl_c_is_an_interruption(self, filled: Cluster) -> None:
        filled.nodes[NAMES[1]].error = Interrupted(what="interrupted", fix="run it again")
        with pytest.raises(Interrupted):
            verify_shards(filled.session(), _look())
