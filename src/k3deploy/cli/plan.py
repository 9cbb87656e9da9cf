"""What a dry run shows: the steps that would be taken, the same words for several nodes on one line."""

from typing import Any

from k3deploy.domain import events as ev
from k3deploy.domain.alike import said_once, who
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
    lines: list[str] = []
    for said in said_once(("", each.phase, each.target, _rows(each)) for each in planned(state)):
        head = f"{', '.join(said.phases):<15} {who(said.targets, state.nodes):<8}"
        for mark, text, detail in said.words:
            lines.append(f"{mark} {head} {text}")
            lines += [f"{'':27}{row}" for row in detail.splitlines()]
    return lines


def _rows(each: ev.Planned) -> tuple[_Row, ...]:
    if not each.steps:
        return (("=", each.reason, ""),)
    return tuple(("+", title, detail) for title, detail in zip(each.steps, each.details, strict=True))
