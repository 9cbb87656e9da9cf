"""The runs of a store: which one is meant, and what a resumed one may change."""

import pytest

from k3deploy.domain.errors import UsageError
from k3deploy.domain.names import RunId
from k3deploy.domain.run import Keys, RunRecord, new_run_id
from k3deploy.flows.runs import Runs
from k3deploy.testing import MemoryStore

NODES = {"gpu-01": "203.0.113.1", "gpu-02": "203.0.113.2"}


def record(run_id: str, created_at: float, addresses: dict[str, str] | None = None) -> RunRecord:
    return RunRecord(RunId(run_id), "h100x32", addresses or NODES, created_at, 64.0)


def runs(*records: RunRecord) -> Runs:
    found = Runs(MemoryStore())
    for each in records:
        found.create(each, profile_lock="name: h100x32\n", nodes_lock={"nodes": []})
    return found


def test_an_id_names_the_profile_and_the_moment() -> None:
    # 2026-11-29 22:10:11 UTC
    assert new_run_id("h100x32", 1_795_990_211.0, "ab12ff") == "h100x32-20261129-221011-ab12"


def test_the_latest_live_run_is_meant_and_a_dead_one_only_when_none_lives() -> None:
    found = runs(record("old", 1.0), record("new", 2.0))
    assert found.latest(None).run_id == "new"
    found.mark_torn_down(RunId("new"), at=3.0)
    assert found.latest(None).run_id == "old"
    found.mark_torn_down(RunId("old"), at=4.0)
    assert found.latest(None).run_id == "new"
    assert found.get("new").ended_at == 3.0


def test_only_runs_on_the_same_machines_are_meant() -> None:
    elsewhere = record("elsewhere", 9.0, {"gpu-01": "198.51.100.7"})
    found = runs(record("here", 1.0), elsewhere)
    assert found.latest(["203.0.113.2"]).run_id == "here"
    assert found.latest(None).run_id == "elsewhere"
    with pytest.raises(UsageError, match="no run yet on these nodes"):
        found.latest(["192.0.2.1"])


def test_an_unknown_id_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no run is called 'nope'") as caught:
        runs(record("here", 1.0)).get("nope")
    assert caught.value.context["found"] == "here"


def test_a_resumed_run_keeps_its_id_and_takes_new_locks_and_addresses() -> None:
    found = runs(record("here", 1.0))
    moved = record("here", 1.0, {**NODES, "gpu-02": "203.0.113.9"})
    found.update(moved, profile_lock="name: h100x32\n# digest settled\n", nodes_lock={"nodes": ["x"]})
    assert found.get("here").addresses["gpu-02"] == "203.0.113.9"
    lock = found.store.get(Keys(RunId("here")).profile_lock)
    assert lock is not None
    assert lock.data == b"name: h100x32\n# digest settled\n"
