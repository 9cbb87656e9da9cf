"""What `status` says about a run, from its record and the fold over its events: one view, as text and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.domain.run import RunRecord, cost_usd
from k3deploy.domain.run_state import RunState, Unit
from k3deploy.domain.units import duration_text, usd_text


@dataclass(frozen=True)
class PhaseCount:
    """How many targets of a phase are done, and what is to be said about those that are not."""

    phase: str
    done: int
    total: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    record: RunRecord
    state: RunState
    now: float

    @property
    def billed_s(self) -> float:
        """Seconds since the run began, up to its teardown. The machines may have been rented before."""
        return (self.record.ended_at or self.now) - self.record.created_at

    @property
    def cost_usd(self) -> float | None:
        return cost_usd(self.record.usd_per_hour, self.billed_s)

    @property
    def has_failed(self) -> bool:
        return self.record.is_live and self.state.outcome == "failed"

    @property
    def phases(self) -> tuple[PhaseCount, ...]:
        by_phase: dict[str, list[Unit]] = {}
        for unit in self.state.units.values():
            by_phase.setdefault(unit.phase, []).append(unit)
        return tuple(
            PhaseCount(
                phase,
                done=sum(unit.status in ("done", "unchanged") for unit in units),
                total=len(units),
                notes=_notes([unit for unit in units if unit.status not in ("done", "unchanged")]),
            )
            for phase, units in by_phase.items()
        )

    @property
    def answers(self) -> Mapping[str, Mapping[str, Any]]:
        """Evidence of the chat phase by replica: endpoint, model, answer."""
        return {unit.target: unit.evidence for unit in self.state.phase("chat") if unit.evidence}

    @property
    def headline(self) -> str:
        if not self.record.is_live:
            return "torn down"
        since = duration_text(self.now - (self.state.updated_at or self.record.created_at))
        if not self.state.outcome:
            return f"live; `{self.state.flow or 'up'}` under way or cut off, last sign {since} ago"
        return f"live; last `{self.state.flow}` {self.state.outcome} {since} ago"

    @property
    def cost_line(self) -> str:
        rate = self.record.usd_per_hour
        if rate is None:
            return "unknown: the profile names no price"
        spent = f"{usd_text(rate)}/h x {duration_text(self.billed_s)} = {usd_text(self.cost_usd or 0)}"
        return spent + (" so far; the machines bill until they are deleted" if self.record.is_live else " in all")

    def as_dict(self) -> dict[str, Any]:
        return {
            "run_id": self.record.run_id,
            "profile": self.record.profile,
            "state": self.record.state,
            "headline": self.headline,
            "nodes": dict(self.record.addresses),
            "flow": self.state.flow,
            "outcome": self.state.outcome,
            "usd_per_hour": self.record.usd_per_hour,
            "billed_s": round(self.billed_s, 1),
            "cost_usd": None if self.cost_usd is None else round(self.cost_usd, 2),
            "phases": [
                {"phase": count.phase, "done": count.done, "total": count.total, "notes": list(count.notes)}
                for count in self.phases
            ],
            "answers": {name: dict(evidence) for name, evidence in self.answers.items()},
        }


def _notes(units: Sequence[Unit]) -> tuple[str, ...]:
    """What failed or goes on, one by one; what only waits for others, together."""
    blocked = [unit for unit in units if unit.status == "blocked"]
    notes = [f"{unit.target} {unit.status}: {unit.message}" for unit in units if unit.status != "blocked"]
    if blocked:
        waits = blocked[0].message + (", ..." if len({unit.message for unit in blocked}) > 1 else "")
        notes.append(f"{', '.join(unit.target for unit in blocked)} not started: {waits}")
    return tuple(notes)
