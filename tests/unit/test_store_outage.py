"""The store goes away while a run is at work: nothing starts unrecorded, no failure is hidden, a short outage is sat
out."""

from dataclasses import dataclass, field

import pytest

from k3deploy.cli.failure import followed_by, report
from k3deploy.cli.summary import Words
from k3deploy.domain import events as ev
from k3deploy.domain.errors import Bug, Interrupted, K3Error, StoreError, StoreUnreachable
from k3deploy.domain.names import RunId
from k3deploy.domain.run import Keys, RunRecord
from k3deploy.runner.event_log import EventLog, read_events
from k3deploy.runner.retry import Retry
from k3deploy.testing import FakeClock, MemoryStore

KEYS = Keys(RunId("lab-20261129-000000-abcd"))
STEP = ev.StepStarted(at=2.0, phase="storage", target="a", step="move docker")
FAILED = ev.TargetFailed(at=3.0, phase="storage", target="a", error={"what": "no disk"}, duration_s=1.0)
DONE = ev.Verified(at=4.0, phase="image", target="a", summary="pulled", evidence={}, has_changed=True, duration_s=1.0)
END = ev.RunFinished(at=5.0, run_id=KEYS.run, outcome="failed", has_changed=True, duration_s=4.0)


@dataclass
class Outage(MemoryStore):
    is_down: bool = field(default=True)

    def __post_init__(self) -> None:
        MemoryStore.__init__(self)

    def put_if_absent(self, key: str, data: bytes) -> str:
        if self.is_down:
            raise StoreUnreachable(what="the store cannot be reached", fix="check the network")
        return super().put_if_absent(key, data)


@pytest.mark.parametrize("event", [STEP, END], ids=["a step", "the end"])
def test_what_must_be_on_record_stops_without_a_store(event: ev.Event) -> None:
    with pytest.raises(StoreError):
        EventLog(Outage(), KEYS).emit(event)


def test_what_has_happened_is_recorded_when_the_store_is_back() -> None:
    store = Outage()
    log = EventLog(store, KEYS)
    log.emit(FAILED)
    log.emit(DONE)
    store.is_down = False
    log.emit(END)
    assert list(read_events(store, KEYS)) == [FAILED, DONE, END]


def test_a_store_that_does_not_answer_is_tried_again_and_one_that_refuses_is_not() -> None:
    assert Retry().delay_after(1, StoreUnreachable(what="no answer", fix="wait")) == 2.0
    assert Retry().delay_after(1, StoreError(what="access denied", fix="ask for it")) is None


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [(ZeroDivisionError("division by zero"), Bug, 70), (KeyboardInterrupt(), Interrupted, 130)],
)
def test_the_cost_is_the_last_line_whatever_ended_the_run(
    error: BaseException, kind: type[K3Error], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind) as caught, followed_by(lambda: "4 machines still bill: $64.00/h"):
        raise error
    assert report(caught.value, wants_json=False) == code
    assert capsys.readouterr().err.splitlines()[-1] == "4 machines still bill: $64.00/h"


def test_the_cost_is_that_of_the_moment_the_run_ended() -> None:
    clock = FakeClock()
    record = RunRecord(KEYS.run, "lab", {"a": "203.0.113.1"}, created_at=clock.now(), usd_per_hour=64.0)
    words = Words(record, clock, "k3deploy up --profile lab")

    def an_hour_later() -> None:
        with words.still_billing():
            clock.sleep(3600.0)
            raise StoreError(what="gone", fix="bring it back")

    with pytest.raises(StoreError) as caught:
        an_hour_later()
    assert caught.value.__notes__ == ["1 machine still bills: $64.00/h, $64.00 since this run began"]
