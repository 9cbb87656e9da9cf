"""Phases in values: what a phase acts on (Target), what it would do (Plan of Steps), what it found after (Verdict)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from k3deploy.domain.names import NodeName


class TargetKind(StrEnum):
    NODE = "node"
    REPLICA = "replica"
    RUN = "run"


@dataclass(frozen=True)
class Target:
    """What a phase acts on. `nodes` decides what waits for what: two targets that share a node depend on each other."""

    kind: TargetKind
    name: str
    nodes: tuple[NodeName, ...]

    @staticmethod
    def node(name: NodeName) -> "Target":
        return Target(TargetKind.NODE, str(name), (name,))

    @staticmethod
    def replica(name: str, nodes: tuple[NodeName, ...]) -> "Target":
        return Target(TargetKind.REPLICA, name, nodes)

    def overlaps(self, other: "Target") -> bool:
        return not set(self.nodes).isdisjoint(other.nodes)


@dataclass(frozen=True)
class Step:
    """One action. `title` says it as a person would; `action` is a frozen value the runner performs.

    `action` implements `contracts.Action`; it is typed loosely here because the domain knows no services.
    `detail` is what `--dry-run` prints beneath the title: the exact command, the exact file change.
    """

    title: str
    action: Any
    detail: str = ""


@dataclass(frozen=True)
class Plan:
    """What still has to be done for one target: steps in order, or a reason why nothing is needed."""

    steps: tuple[Step, ...] = ()
    reason: str = ""

    @staticmethod
    def noop(reason: str) -> "Plan":
        if not reason:
            raise ValueError("a plan that does nothing must say why")
        return Plan((), reason)

    @staticmethod
    def of(*steps: Step) -> "Plan":
        if not steps:
            raise ValueError("a plan without steps is Plan.noop(reason)")
        return Plan(steps)

    @property
    def is_noop(self) -> bool:
        return not self.steps


@dataclass(frozen=True)
class Verdict:
    """What was read back. `evidence` goes into the marker and the report; a failure carries what/why/fix."""

    is_ok: bool
    summary: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    fix: str = ""

    @staticmethod
    def ok(summary: str, **evidence: Any) -> "Verdict":
        return Verdict(True, summary, evidence)

    @staticmethod
    def bad(summary: str, *, why: str = "", fix: str, **evidence: Any) -> "Verdict":
        return Verdict(False, summary, evidence, why, fix)
