"""Which run `teardown` means, and its last words."""

from pathlib import Path

import pytest

from k3deploy.adapters.clock import SystemClock
from k3deploy.cli.farewell import TornDown
from k3deploy.cli.teardown import choose
from k3deploy.cli.wiring import Place
from k3deploy.domain.errors import UsageError
from k3deploy.domain.holdings import TeardownOptions
from k3deploy.domain.names import RunId
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.run import RunRecord
from k3deploy.domain.run_state import RunState
from k3deploy.flows.runs import Runs
from k3deploy.testing import MemoryStore

NODES = NodesFile(
    nodes=(NodeEntry(name="gpu-01", address="203.0.113.1"), NodeEntry(name="gpu-02", address="203.0.113.2"))
)


def place(*runs: tuple[str, str, str]) -> Place:
    """Runs by id, state and the address of their one machine, oldest first."""
    store = Runs(MemoryStore())
    for at, (run_id, state, address) in enumerate(runs):
        record = RunRecord(RunId(run_id), "p", {"gpu-01": address}, created_at=float(at), usd_per_hour=None)
        store.create(record, profile_lock="", nodes_lock={})
        if state == "torn-down":
            store.mark_torn_down(record.run_id, at=100.0)
    return Place(Path("nodes.yaml"), NODES, store, SystemClock())


def test_the_only_live_run_of_these_machines_is_meant() -> None:
    found = choose(
        place(("a", "torn-down", "203.0.113.1"), ("b", "live", "203.0.113.1"), ("c", "live", "198.51.100.9")), None
    )
    assert found.run_id == "b"


def test_several_live_runs_are_listed_and_none_is_taken() -> None:
    two = place(("a", "live", "203.0.113.1"), ("b", "live", "203.0.113.2"))
    with pytest.raises(UsageError) as caught:
        choose(two, None)
    assert caught.value.what == "2 runs are live on these machines"
    assert caught.value.context["found"] == "b, a"
    assert choose(two, "a").run_id == "a"


def test_without_a_live_run_the_last_one_can_be_finished() -> None:
    found = choose(place(("a", "torn-down", "203.0.113.1"), ("b", "torn-down", "203.0.113.1")), None)
    assert found.run_id == "b"


def test_without_any_run_there_is_nothing_to_end() -> None:
    with pytest.raises(UsageError, match="there is no run yet on these nodes"):
        choose(place(), None)


def farewell(usd_per_hour: float | None, options: TeardownOptions) -> TornDown:
    record = RunRecord(
        RunId("r"), "p", {"gpu-01": "203.0.113.1", "gpu-02": "203.0.113.2"}, created_at=0.0, usd_per_hour=usd_per_hour
    )
    return TornDown(record, RunState(), options, "s3://bucket/k3", now=4500.0)


def test_the_last_words_name_time_cost_and_what_still_bills() -> None:
    told = farewell(64.0, TeardownOptions(purges_weights=True, restores=True))
    assert told.text().splitlines() == [
        "run r is torn down; its logs are in s3://bucket/k3",
        "the run took 1 h 15 min: $80.00",
        "2 machines still bill until deleted: $64.00/h",
        "  gpu-01  203.0.113.1",
        "  gpu-02  203.0.113.2",
        "delete them in your provider's console or by its API, then check there that none of these addresses is listed",
    ]
    body = told.as_dict()
    assert (body["cost_usd"], body["run_s"]) == (80.0, 4500.0)
    assert body["still_billing"] == {"gpu-01": "203.0.113.1", "gpu-02": "203.0.113.2"}


def test_what_was_read_back_is_said_once_for_the_nodes_that_say_it() -> None:
    told = farewell(64.0, TeardownOptions())
    for node, message in (("gpu-01", "GPUs and ports are free"), ("gpu-02", "GPUs and ports are free")):
        told.state.unit("prove-free", node).message = message
    told.state.unit("release", "gpu-02").message = "said: released"
    lines = told.text().splitlines()
    assert "read back: GPUs and ports are free (gpu-01, gpu-02)" in lines
    assert "read back: said: released (gpu-02)" in lines


def test_what_stays_on_the_nodes_is_said_and_an_unknown_price_is_none() -> None:
    text = farewell(None, TeardownOptions()).text()
    assert "the weights stay on the nodes (--purge-weights removes them)" in text
    assert "Docker and the cache stay where the run put them (--restore undoes it)" in text
    assert "the profile names no price" in text
    assert "$" not in text
