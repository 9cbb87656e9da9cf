"""A store whose objects were cut short or overwritten: hints are dropped, facts are asked for by name, no trace."""

import pytest

from k3deploy.adapters.nodes_file import nodes_from_lock
from k3deploy.domain import events as ev
from k3deploy.domain.errors import K3Error, ProfileError, StoreError, UsageError
from k3deploy.domain.names import PhaseName, RunId
from k3deploy.domain.run import RECORDS, Keys
from k3deploy.flows.runs import Runs
from k3deploy.runner.event_log import EventLog, read_events
from k3deploy.runner.marker import Markers
from k3deploy.runner.pins import StorePins
from k3deploy.testing import MemoryStore

KEYS = Keys(RunId("lab-20261129-000000-abcd"))
DAMAGED = (b"", b"{", b"\xff\x00", b"null", b"7", b"[1]", b'{"schema": 1}')


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_marker_is_no_marker(data: bytes) -> None:
    store = MemoryStore()
    store.put(KEYS.marker(PhaseName("image"), "gpu-01"), data)
    assert Markers(store, KEYS).get(PhaseName("image"), "gpu-01") is None


@pytest.mark.parametrize("data", [data for data in DAMAGED if not data.startswith(b'{"')])
def test_a_damaged_pin_is_named(data: bytes) -> None:
    store = MemoryStore()
    store.put(KEYS.pin("image"), data)
    with pytest.raises(StoreError) as caught:
        StorePins(store, KEYS).get("image")
    assert caught.value.what == "runs/lab-20261129-000000-abcd/pins/image.json is damaged"


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_batch_hides_no_other_event(data: bytes) -> None:
    store = MemoryStore()
    store.put(KEYS.event_batch(1), data)
    step = ev.StepStarted(at=2.0, phase="storage", target="a", step="move docker")
    EventLog(store, KEYS).emit(step)
    assert list(read_events(store, KEYS)) == [step]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_record_is_named(data: bytes) -> None:
    store = MemoryStore()
    store.put(f"{RECORDS}lost.json", data)
    with pytest.raises(StoreError) as caught:
        Runs(store).all()
    assert caught.value.what == "cannot read the run record records/lost.json"


@pytest.mark.parametrize("data", DAMAGED)
def test_damaged_nodes_are_an_error_of_ours_to_tell(data: bytes) -> None:
    with pytest.raises(K3Error) as caught:
        nodes_from_lock(data)
    assert isinstance(caught.value, ProfileError)


@pytest.mark.parametrize("run_id", ["../../etc", "", "a b", "x" * 600, "ü"])
def test_an_id_that_no_store_can_hold_is_an_unknown_one(run_id: str) -> None:
    with pytest.raises(UsageError, match="no run is called"):
        Runs(MemoryStore()).get(run_id)
