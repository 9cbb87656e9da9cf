"""The state of a run as a fold over its events: the one source of the console, `status` and the report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from k3deploy.domain import events as ev
from k3deploy.domain.pace import Pace

UnitStatus = Literal["running", "done", "unchanged", "planned", "failed", "blocked"]


@dataclass
class Unit:
    """Where one (phase, target) stands. `message` is the last thing said about it."""

    phase: str
    target: str
    title: str = ""
    status: UnitStatus = "running"
    step: str = ""  # in hand now
    message: str = ""
    done: float | None = None
    total: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)  # of the last progress: what its step counts
    pace: Pace = field(default_factory=Pace)  # of `done` in this step
    started_at: float = 0.0
    ended_at: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    planned: ev.Planned | None = None  # of a dry run


@dataclass
class RunState:
    run_id: str = ""
    profile: str = ""
    flow: str = ""
    usd_per_hour: float | None = None
    nodes: tuple[str, ...] = ()
    started_at: float | None = None  # of the first flow of this run
    flow_started_at: float | None = None
    updated_at: float | None = None
    outcome: str = ""  # of the last flow; empty while it goes on
    has_changed: bool = False
    units: dict[tuple[str, str], Unit] = field(default_factory=dict)

    def unit(self, phase: str, target: str) -> Unit:
        return self.units.setdefault((phase, target), Unit(phase, target))

    def evidence(self, phase: str, target: str) -> Mapping[str, Any]:
        found = self.units.get((phase, target))
        return found.evidence if found else {}

    def phase(self, phase: str) -> list[Unit]:
        return [unit for unit in self.units.values() if unit.phase == phase]


def fold(events: Iterable[ev.Event]) -> RunState:
    """The state after all events."""
    state = RunState()
    for event in events:
        apply(state, event)
    return state


def apply(state: RunState, event: ev.Event) -> None:
    """Bring the state forward by one event. Unknown events change nothing but the time."""
    state.updated_at = event.at
    match event:
        case ev.RunStarted():
            state.run_id, state.profile, state.flow = event.run_id, event.profile, event.flow
            state.nodes, state.usd_per_hour, state.outcome = event.nodes, event.usd_per_hour, ""
            state.flow_started_at = event.at
            if state.started_at is None:
                state.started_at = event.at
        case ev.PhaseStarted():
            before = state.units.get((event.phase, event.target))
            unit = Unit(event.phase, event.target, title=event.title, started_at=event.at)
            unit.evidence = before.evidence if before else {}
            state.units[(event.phase, event.target)] = unit
        case ev.Planned():
            unit = state.unit(event.phase, event.target)
            unit.message = event.reason or (event.steps[0] if event.steps else "")
            if event.is_dry:
                unit.status, unit.planned = "planned", event
        case ev.StepStarted():
            unit = state.unit(event.phase, event.target)
            unit.step, unit.message, unit.done, unit.total = event.step, event.step, None, None
            unit.numbers, unit.pace = {}, Pace()
        case ev.Progressed():
            unit = state.unit(event.phase, event.target)
            unit.message, unit.done, unit.total = event.message, event.done, event.total
            unit.numbers = event.numbers
            if event.done is not None:
                unit.pace = unit.pace.then(event.at, event.done)
        case ev.StepFinished():
            state.unit(event.phase, event.target).step = ""
        case ev.Retried():
            state.unit(event.phase, event.target).message = f"retry {event.attempt}: {event.reason}"
        case ev.Verified():
            unit = state.unit(event.phase, event.target)
            unit.status = "done" if event.has_changed else "unchanged"
            unit.message, unit.ended_at, unit.step = event.summary, event.at, ""
            if event.evidence:
                unit.evidence = event.evidence
            unit.error = None
        case ev.TargetFailed():
            unit = state.unit(event.phase, event.target)
            unit.status, unit.error, unit.ended_at = "failed", event.error, event.at
            unit.message = str(event.error.get("what", ""))
        case ev.TargetBlocked():
            unit = state.unit(event.phase, event.target)
            unit.status, unit.message, unit.ended_at = "blocked", event.reason, event.at
        case ev.RunFinished():
            state.outcome, state.has_changed = event.outcome, event.has_changed
        case _:
            pass
