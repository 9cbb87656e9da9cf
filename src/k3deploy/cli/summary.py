"""The last words of `up`: the answer and where to reach it, what changed, what it costs, what to type next."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from k3deploy.cli.plan import plan_as_dict, plan_lines
from k3deploy.contracts import Clock
from k3deploy.domain.faults import Fault
from k3deploy.domain.run import RunRecord, cost_usd
from k3deploy.domain.run_state import RunState
from k3deploy.domain.units import duration_text, usd_text
from k3deploy.flows.session import Outcome


@dataclass(frozen=True)
class Words:
    """What is said when a run does not come to its end."""

    record: RunRecord
    clock: Clock
    again: str

    def stopping(self, state: RunState) -> str:
        """After the first Ctrl-C."""
        running = [f"{unit.step} ({unit.target})" for unit in state.units.values() if unit.status == "running"]
        steps = "; ".join(step for step in running if not step.startswith(" (")) or "nothing"
        return (
            f"stopping: this finishes: {steps}\n"
            "  nothing starts after it; detached work on the nodes (downloads, hashing, pulls) goes on\n"
            f"  {billing(self.record, self.clock.now())}\n"
            f"  go on later with: {self.again}\n"
            "  Ctrl-C again leaves at once"
        )

    @contextmanager
    def still_billing(self) -> Iterator[None]:
        """Whatever error is shown within, the hourly cost is the last line on stderr."""
        from k3deploy.cli import failure

        with failure.followed_by(lambda: billing(self.record, self.clock.now())):
            yield


def warn(fault: Fault) -> None:
    """A warning of the profile's rules, on stderr."""
    sys.stderr.write(f"warning: {fault.what}\n" + (f"  why: {fault.why}\n" if fault.why else ""))


def billing(record: RunRecord, now: float) -> str:
    """`4 machines still bill: $64.00/h, $3.20 since this run began`."""
    count = len(record.addresses)
    machines = "1 machine still bills" if count == 1 else f"{count} machines still bill"
    if record.usd_per_hour is None:
        return f"{machines}; the profile names no price"
    spent = cost_usd(record.usd_per_hour, now - record.created_at) or 0.0
    return f"{machines}: {usd_text(record.usd_per_hour)}/h, {usd_text(spent)} since this run began"


@dataclass(frozen=True)
class Deployed:
    record: RunRecord
    outcome: Outcome
    is_dry: bool
    until: str | None
    now: float
    where: str = ""  # options that the next command needs too

    def as_dict(self) -> dict[str, Any]:
        result, state = self.outcome.result, self.outcome.state
        return {
            "run_id": self.record.run_id,
            "profile": self.record.profile,
            "is_dry_run": self.is_dry,
            "until": self.until,
            "has_changed": result.has_changed,
            "would_change": result.has_pending,
            **({"plan": plan_as_dict(state)} if self.is_dry else {}),
            "units": {f"{phase}/{target}": str(ended) for (phase, target), ended in sorted(result.ended.items())},
            "answers": {unit.target: dict(unit.evidence) for unit in state.phase("chat")},
            "usd_per_hour": self.record.usd_per_hour,
            "billed_s": round(self.now - self.record.created_at, 1),
        }

    def text(self) -> str:
        return "\n".join([*self._headline(), *self._answers(), *self._closing()])

    @property
    def plan(self) -> str:
        """What a dry run would do; empty when nothing is left to plan, or when it was no dry run."""
        return "\n".join(plan_lines(self.outcome.state))

    def _headline(self) -> list[str]:
        result = self.outcome.result
        count = len(result.ended)
        if self.is_dry:
            if result.has_pending:
                return ["dry run: the steps marked + would be taken; nothing was changed"]
            return [f"dry run: nothing to do, all {count} checks pass; nothing was changed"]
        if not result.has_changed:
            return [f"nothing to do: all {count} checks of run {self.record.run_id} pass on the nodes as they are now"]
        spent = duration_text((self.outcome.state.updated_at or 0) - (self.outcome.state.flow_started_at or 0))
        what = f"up to {self.until}" if self.until else "up"
        return [f"{self.record.run_id}: {what} in {spent}"]

    def _answers(self) -> list[str]:
        lines: list[str] = []
        for unit in self.outcome.state.phase("chat"):
            if not unit.evidence:
                continue
            lines += _answer_lines(unit.target, unit.evidence)
            if self.outcome.result.has_changed:
                ready = self.outcome.state.evidence("ready", unit.target)
                lines += [f"  memory    {line}" for line in ready.get("memory", ())]
                lines += [f"  warning   {line}" for line in ready.get("warnings", ())]
        return lines

    def _closing(self) -> list[str]:
        if self.is_dry:
            return []
        if self.until and "chat" not in {phase for phase, _ in self.outcome.result.ended}:
            return [billing(self.record, self.now), "next: the same command without --until goes on from here"]
        status = f"k3deploy status --run-id {self.record.run_id}{self.where}"
        return [billing(self.record, self.now), f"next: {status} | k3deploy teardown{self.where} --confirm"]


def _answer_lines(replica: str, evidence: Mapping[str, Any]) -> list[str]:
    shown = {
        "endpoint": evidence.get("endpoint"),
        "model": evidence.get("model"),
        "asked": evidence.get("question"),
        "answer": evidence.get("answer"),
        "speed": evidence.get("speed"),
        "context": evidence.get("context"),
        "API key": evidence.get("key_file"),
    }
    return [replica, *(f"  {name:<9} {value}" for name, value in shown.items() if value)]
