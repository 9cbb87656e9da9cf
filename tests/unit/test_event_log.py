"""The run's log: what is on record when, and what comes back."""

from k3deploy.domain import events as ev
from k3deploy.domain.names import RunId
from k3deploy.domain.run import Keys
from k3deploy.domain.run_state import fold
from k3deploy.runner.event_log import EventLog, read_events
from k3deploy.testing import MemoryStore

KEYS = Keys(RunId("lab-20261129-000000-abcd"))
START = ev.RunStarted(at=1.0, run_id=KEYS.run, flow="deploy", profile="lab", nodes=("a",), usd_per_hour=64.0)
STEP = ev.StepStarted(at=2.0, phase="storage", target="a", step="move docker")


def test_intent_is_on_record_before_the_act_and_progress_is_not_kept() -> None:
    store = MemoryStore()
    log = EventLog(store, KEYS)
    log.emit(START)
    assert list(read_events(store, KEYS)) == []
    log.emit(STEP)
    assert list(read_events(store, KEYS)) == [START, STEP]
    log.emit(ev.Progressed(at=3.0, phase="storage", target="a", message="half"))
    log.close()
    assert list(read_events(store, KEYS)) == [START, STEP]


def test_two_writers_never_overwrite_each_other() -> None:
    store = MemoryStore()
    first, second = EventLog(store, KEYS), EventLog(store, KEYS)
    first.emit(STEP)
    second.emit(STEP)
    first.emit(STEP)
    second.emit(STEP)
    assert len(store.list(KEYS.events)) == 4
    assert len(list(read_events(store, KEYS))) == 4


def test_every_event_type_survives_the_round_trip() -> None:
    samples: list[ev.Event] = [
        START,
        STEP,
        ev.PhaseStarted(at=1.0, phase="p", target="t", title="T"),
        ev.Planned(at=1.0, phase="p", target="t", steps=("a",), details=("b",)),
        ev.Progressed(at=1.0, phase="p", target="t", message="m", done=1.0, total=2.0, numbers={"hub_bps": 3e9}),
        ev.StepFinished(at=1.0, phase="p", target="t", step="a", duration_s=0.5),
        ev.Retried(at=1.0, phase="p", target="t", attempt=1, reason="r", delay_s=2.0),
        ev.Verified(at=1.0, phase="p", target="t", summary="s", has_changed=True, duration_s=1.0, evidence={"x": 1}),
        ev.TargetFailed(at=1.0, phase="p", target="t", error={"what": "w"}, duration_s=1.0),
        ev.TargetBlocked(at=1.0, phase="p", target="t", reason="r"),
        ev.RunFinished(at=9.0, run_id="r", outcome="done", has_changed=True, duration_s=8.0),
    ]
    assert {type(sample) for sample in samples} == set(ev.EVENT_TYPES)
    assert [ev.from_json(sample.to_json(1)) for sample in samples] == samples


def test_an_event_of_a_newer_version_is_left_out() -> None:
    assert ev.from_json('{"schema":1,"type":"FromTheFuture","at":1}') is None


def test_status_is_a_fold_over_the_log() -> None:
    state = fold(
        [
            START,
            ev.PhaseStarted(at=2.0, phase="storage", target="a", title="Storage"),
            ev.Verified(at=5.0, phase="storage", target="a", summary="moved", has_changed=True, duration_s=3.0),
            ev.RunFinished(at=6.0, run_id=KEYS.run, outcome="done", has_changed=True, duration_s=5.0),
            ev.RunStarted(at=60.0, run_id=KEYS.run, flow="deploy", profile="lab", nodes=("a",), usd_per_hour=64.0),
            ev.PhaseStarted(at=61.0, phase="storage", target="a", title="Storage"),
            ev.TargetFailed(at=62.0, phase="storage", target="a", error={"what": "disk gone"}, duration_s=1.0),
        ]
    )
    assert state.started_at == 1.0
    assert state.flow_started_at == 60.0
    assert state.outcome == ""
    assert state.unit("storage", "a").status == "failed"
    assert state.unit("storage", "a").message == "disk gone"
