"""What a dry run shows: the steps that would be taken, the same words for several nodes on one line."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from k3deploy.domain import events as ev
from k3deploy.domain.run_state import RunState

# (mark, text, detail): what one unit would do, or why nothing.
_Row = tuple[str, str, str]


def planned(state: RunState) -> list[ev.Planned]:
    """What was planned, in the order of the phases."""
    return [unit.planned for unit in state.units.values() if unit.planned is not None]


def plan_as_dict(state: RunState) -> list[dict[str, Any]]:
    return [
        {
            "phase": each.phase,
            "target": each.target,
            "steps": [{"title": t, "detail": d} for t, d in zip(each.steps, each.details, strict=True)],
            "reason": each.reason,
        }
        for each in planned(state)
    ]


def plan_lines(state: RunState) -> list[str]:
    """`+ phase  targets  step` for what would be done, `= phase  targets  reason` where nothing would be."""
    groups: dict[tuple[str, tuple[_Row, ...]], list[str]] = {}
    for each in planned(state):
        groups.setdefault((each.phase, _rows(each)), []).append(each.target)
    ranks = {phase: rank for rank, phase in enumerate(dict.fromkeys(phase for phase, _ in groups))}
    ordered = sorted(groups.items(), key=lambda item: (ranks[item[0][0]], sorted(item[1])))
    lines: list[str] = []
    for rows, alike in groupby(ordered, key=lambda item: item[0][1]):
        members = [(phase, targets) for (phase, _), targets in alike]
        phases = dict.fromkeys(phase for phase, _ in members)
        if len(phases) > 1:  # the same reason for several phases: what they wait for is not done yet
            lines.append(f"{rows[0][0]} {', '.join(phases)}: {rows[0][1]}")
            continue
        who = _who([target for _, targets in members for target in targets], state.nodes)
        for mark, text, detail in rows:
            lines.append(f"{mark} {members[0][0]:<15} {who:<8} {text}")
            lines += [f"{'':27}{row}" for row in detail.splitlines()]
    return lines


def _rows(each: ev.Planned) -> tuple[_Row, ...]:
    if not each.steps:
        return (("=", each.reason, ""),)
    return tuple(("+", title, detail) for title, detail in zip(each.steps, each.details, strict=True))


def _who(targets: Iterable[str], nodes: Sequence[str]) -> str:
    names = sorted(targets)
    if len(names) > 1 and set(names) == set(nodes):
        return f"all {len(names)}"
    return ", ".join(names)
