"""Which (phase, target) waits for which: by the phases a phase needs and the nodes that two targets share. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.contracts import Phase
from k3deploy.domain.errors import UsageError
from k3deploy.domain.names import NodeName, PhaseName
from k3deploy.domain.steps import Target

AnyPhase = Phase[Any]


@dataclass(frozen=True, eq=False)
class Unit:
    phase: AnyPhase
    target: Target

    @property
    def key(self) -> tuple[str, str]:
        return (str(self.phase.name), self.target.name)

    @property
    def label(self) -> str:
        return f"{self.phase.name} on {self.target.name}"


def closure(phases: Sequence[AnyPhase], until: str | None) -> tuple[AnyPhase, ...]:
    """The phases that `--until NAME` runs: that phase and all it needs, in the given order.

    Raises UsageError for a name that is no phase.
    """
    if until is None:
        return tuple(phases)
    by_name = {str(phase.name): phase for phase in phases}
    if until not in by_name:
        raise UsageError(
            what=f"no phase is called {until!r}",
            fix="use one of: " + ", ".join(by_name),
            context={"found": until},
        )
    wanted: set[str] = set()
    waiting = [until]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += [str(need) for need in by_name[name].needs]
    return tuple(phase for phase in phases if str(phase.name) in wanted)


def units(phases: Sequence[AnyPhase], nodes: Sequence[NodeName] | None = None) -> tuple[Unit, ...]:
    """Every (phase, target), in the order of the phases; with `nodes`, of the targets that one of them is in."""
    return tuple(
        Unit(phase, target)
        for phase in phases
        for target in phase.targets()
        if nodes is None or not set(nodes).isdisjoint(target.nodes)
    )


def dependencies(all_units: Sequence[Unit]) -> Mapping[Unit, tuple[Unit, ...]]:
    """For each unit the units it waits for. Raises ValueError for a need that no phase of the flow meets."""
    by_phase: dict[PhaseName, list[Unit]] = {}
    for unit in all_units:
        by_phase.setdefault(unit.phase.name, []).append(unit)
    result: dict[Unit, tuple[Unit, ...]] = {}
    for unit in all_units:
        for need in unit.phase.needs:
            if need not in by_phase:
                raise ValueError(f"phase {unit.phase.name} needs {need}, which this flow does not have")
        result[unit] = tuple(
            other for need in unit.phase.needs for other in by_phase[need] if other.target.overlaps(unit.target)
        )
    return result
