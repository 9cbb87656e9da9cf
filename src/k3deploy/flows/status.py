"""`status`: the fold over a run's log; `health`: what the nodes say now, by the verify of the phases that matter."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.contracts import Services
from k3deploy.domain.alike import said_once, who
from k3deploy.domain.errors import K3Error, ProgramFailed
from k3deploy.domain.names import NodeName
from k3deploy.domain.run import Keys, RunRecord
from k3deploy.domain.run_state import fold
from k3deploy.domain.status import Status
from k3deploy.domain.steps import Target, TargetKind
from k3deploy.flows.runs import Runs
from k3deploy.flows.session import Session, standing_questions
from k3deploy.phases.on_each import try_each
from k3deploy.runner.event_log import read_events
from k3deploy.runner.graph import AnyPhase


def read_status(runs: Runs, record: RunRecord, now: float) -> Status:
    """No node is asked: this works when all of them are gone."""
    return Status(record, fold(read_events(runs.store, Keys(record.run_id))), now)


@dataclass(frozen=True)
class UnitHealth:
    """What one unit's `verify` says now."""

    phase: str
    target: str
    is_ok: bool
    summary: str


@dataclass(frozen=True)
class Health:
    units: tuple[UnitHealth, ...]
    nodes: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        return all(unit.is_ok for unit in self.units)

    def as_dict(self) -> dict[str, Any]:
        return {"is_ok": self.is_ok, "units": [vars(unit) for unit in self.units]}

    def text(self) -> str:
        marks = {True: "ok ", False: "BAD"}
        rows = said_once((marks[each.is_ok], each.phase, each.target, each.summary) for each in self.units)
        return "\n".join(
            f"{each.mark}  {who(each.targets, self.nodes):<10} {', '.join(each.phases):<15} {each.words}"
            for each in rows
        )


def health(session: Session) -> Health:
    """Verify every unit of `up` now, reading only."""
    from k3deploy.flows.deploy import deploy_phases  # `status` alone asks no node, and shall not load the phases

    return Health(look(session, deploy_phases(session)), tuple(session.nodes))


def look(session: Session, phases: Sequence[AnyPhase]) -> tuple[UnitHealth, ...]:
    """What each unit's `verify` says. All nodes are asked at once; one that is away is tried once, not once a phase."""
    svc = session.svc
    session.survey.standing = lambda node: standing_questions(svc, phases, node)
    _, away = try_each(session.nodes, lambda node: _survey(svc, phases, node))
    return tuple(_look(svc, phase, target, away) for phase in phases for target in phase.targets())


def _survey(svc: Services, phases: Sequence[AnyPhase], node: NodeName) -> None:
    """Have the node's answers kept. What a section refuses to answer is told by the phases that need it."""
    with contextlib.suppress(ProgramFailed):
        for question in standing_questions(svc, phases, node)[:1]:
            svc.survey.ask(node, question)


def _look(svc: Services, phase: AnyPhase, target: Target, away: Mapping[NodeName, K3Error]) -> UnitHealth:
    on_nodes = () if target.kind is TargetKind.RUN else target.nodes
    lost = [away[node].what for node in on_nodes if node in away]
    if lost:
        return UnitHealth(str(phase.name), target.name, False, "; ".join(lost))
    try:
        verdict = phase.verify(svc, target)
    except K3Error as error:
        return UnitHealth(str(phase.name), target.name, False, error.what)
    return UnitHealth(str(phase.name), target.name, verdict.is_ok, verdict.summary)
