"""The life of one (phase, target): marker, verify, probe, plan, steps, verify, marker."""

from dataclasses import dataclass
from enum import StrEnum

from k3deploy.contracts import EventSink, Services
from k3deploy.domain import events as ev
from k3deploy.domain.errors import Interrupted, K3Error, NodeError
from k3deploy.domain.steps import Plan, Verdict
from k3deploy.runner.graph import Unit
from k3deploy.runner.marker import Marker, Markers
from k3deploy.runner.told import progress_to


class Ended(StrEnum):
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    PENDING = "pending"  # dry run: there is something to do


@dataclass(frozen=True)
class UnitRunner:
    svc: Services
    markers: Markers
    sink: EventSink
    is_dry: bool = False

    def run(self, unit: Unit, *, has_pending_needs: bool = False) -> Ended:
        """Raises K3Error when the unit failed, Interrupted when a Ctrl-C came between two steps."""
        phase, target = unit.phase, unit.target
        started = self.svc.clock.monotonic()
        self.sink.emit(ev.PhaseStarted(at=self._now(), phase=str(phase.name), target=target.name, title=phase.title))

        if has_pending_needs:  # dry run: what this unit would see depends on steps that were not taken
            self._emit_planned(unit, Plan.noop("known once what it needs is done"))
            return Ended.PENDING

        inputs = phase.inputs(self.svc, target)
        marker = self.markers.get(phase.name, target.name)
        if marker is not None and marker.inputs == inputs:
            verdict = phase.verify(self.svc, target)
            if verdict.is_ok:
                self._emit_verified(unit, verdict, started, has_changed=False)
                return Ended.UNCHANGED

        plan = phase.plan(target, phase.probe(self.svc, target))
        self._emit_planned(unit, plan)
        if self.is_dry:
            return Ended.UNCHANGED if plan.is_noop else Ended.PENDING

        self._perform(unit, plan)
        verdict = phase.verify(self.svc, target)
        if not verdict.is_ok:
            raise _failure(unit, verdict)
        # Steps may have settled something that the inputs name (a pin), so the marker takes them as they are now.
        self.markers.put(
            phase.name,
            target.name,
            Marker(phase.inputs(self.svc, target), verdict.summary, verdict.evidence, self._now()),
        )
        self._emit_verified(unit, verdict, started, has_changed=not plan.is_noop)
        return Ended.UNCHANGED if plan.is_noop else Ended.CHANGED

    def _perform(self, unit: Unit, plan: Plan) -> None:
        phase, target = str(unit.phase.name), unit.target.name
        for step in plan.steps:
            if self.svc.cancel.is_set:
                raise Interrupted(
                    what=f"interrupted before: {step.title} ({unit.target.name})", fix="run the same command again"
                )
            self.sink.emit(ev.StepStarted(at=self._now(), phase=phase, target=target, step=step.title))
            begun = self.svc.clock.monotonic()
            try:
                step.action.perform(self.svc, progress_to(self.sink, self.svc.clock, phase, target))
            finally:
                self.svc.survey.forget(unit.target.nodes)
            duration_s = self.svc.clock.monotonic() - begun
            self.sink.emit(
                ev.StepFinished(at=self._now(), phase=phase, target=target, step=step.title, duration_s=duration_s)
            )

    def _emit_planned(self, unit: Unit, plan: Plan) -> None:
        self.sink.emit(
            ev.Planned(
                at=self._now(),
                phase=str(unit.phase.name),
                target=unit.target.name,
                steps=tuple(step.title for step in plan.steps),
                details=tuple(step.detail for step in plan.steps),
                reason=plan.reason,
                is_dry=self.is_dry,
            )
        )

    def _emit_verified(self, unit: Unit, verdict: Verdict, started: float, *, has_changed: bool) -> None:
        self.sink.emit(
            ev.Verified(
                at=self._now(),
                phase=str(unit.phase.name),
                target=unit.target.name,
                summary=verdict.summary,
                evidence=dict(verdict.evidence),
                has_changed=has_changed,
                duration_s=self.svc.clock.monotonic() - started,
            )
        )

    def _now(self) -> float:
        return self.svc.clock.now()


def _failure(unit: Unit, verdict: Verdict) -> K3Error:
    return NodeError(
        what=f"{unit.target.name}: {verdict.summary}",
        why=verdict.why or "what was done does not show when it is read back",
        fix=verdict.fix,
        context={"phase": unit.phase.name, **verdict.evidence},
    )
