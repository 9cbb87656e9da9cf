"""`status`: the fold over a run's log; `health`: what the nodes say now, by the verify of the phases that matter."""

from dataclasses import dataclass
from typing import Any

from k3deploy.contracts import Services
from k3deploy.domain.errors import K3Error
from k3deploy.domain.run import Keys, RunRecord
from k3deploy.domain.run_state import fold
from k3deploy.domain.status import Status
from k3deploy.domain.steps import Target, Verdict
from k3deploy.flows.runs import Runs
from k3deploy.flows.session import Session
from k3deploy.runner.event_log import read_events
from k3deploy.runner.graph import AnyPhase


def read_status(runs: Runs, record: RunRecord, now: float) -> Status:
    """No node is asked: this works when all of them are gone."""
    return Status(record, fold(read_events(runs.store, Keys(record.run_id))), now)


@dataclass(frozen=True)
class Finding:
    phase: str
    target: str
    is_ok: bool
    summary: str


@dataclass(frozen=True)
class Health:
    findings: tuple[Finding, ...]

    @property
    def is_ok(self) -> bool:
        return all(finding.is_ok for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"is_ok": self.is_ok, "findings": [vars(finding) for finding in self.findings]}

    def text(self) -> str:
        marks = {True: "ok ", False: "BAD"}
        return "\n".join(
            f"{marks[finding.is_ok]}  {finding.target:<10} {finding.phase:<15} {finding.summary}"
            for finding in self.findings
        )


def health(session: Session) -> Health:
    """Verify every unit of `up` now, reading only."""
    from k3deploy.flows.deploy import deploy_phases

    phases = deploy_phases(session)
    return Health(tuple(_look(session.svc, phase, target) for phase in phases for target in phase.targets()))


def _look(svc: Services, phase: AnyPhase, target: Target) -> Finding:
    try:
        verdict = phase.verify(svc, target)
    except K3Error as error:
        verdict = Verdict.bad(error.what, why=error.why, fix=error.fix)
    return Finding(str(phase.name), target.name, verdict.is_ok, verdict.summary)
