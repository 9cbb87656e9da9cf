"""Findings about many targets, said once: the same words of one phase on one line, the same words of one target too."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W")  # what is said: text, or several lines as a tuple


@dataclass(frozen=True)
class Said(Generic[W]):
    """One thing that holds for every target in every phase named here."""

    mark: str
    phases: tuple[str, ...]
    targets: tuple[str, ...]
    words: W


def said_once(rows: Iterable[tuple[str, str, str, W]]) -> list[Said[W]]:
    """Rows are (mark, phase, target, words). Phases keep the order in which they first came; targets are sorted."""
    by_phase: dict[str, dict[tuple[str, W], set[str]]] = {}
    for mark, phase, target, words in rows:
        by_phase.setdefault(phase, {}).setdefault((mark, words), set()).add(target)
    alike: dict[tuple[str, tuple[str, ...], W], list[str]] = {}
    for phase, said in by_phase.items():
        ordered = [(tuple(sorted(targets)), mark, words) for (mark, words), targets in said.items()]
        ordered.sort(key=lambda item: item[0])
        for names, mark, words in ordered:
            alike.setdefault((mark, names, words), []).append(phase)
    return [Said(mark, tuple(phases), targets, words) for (mark, targets, words), phases in alike.items()]


def who(targets: Sequence[str], nodes: Sequence[str]) -> str:
    """`all 18` for all nodes of a run, else the names."""
    if len(targets) > 1 and set(targets) == set(nodes):
        return f"all {len(targets)}"
    return ", ".join(targets)
