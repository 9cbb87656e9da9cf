"""Merge what several layers say about a profile, and keep for each value which layer it came from.

defaults < the chain of `extends` < the profile itself < the command line. Maps are merged key by key; scalars and
lists are replaced whole; null takes away what a lower layer said, so that the default counts again.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from k3deploy.domain import yaml_text
from k3deploy.domain.faults import Fault, Path, path_text, shown
from k3deploy.domain.yaml_text import Document

DEFAULT = "default"
# A child that changes a launch must not speak with its parent's name, or claim its parent's proof.
NOT_INHERITED = ("name", "description", "provenance", "extends")

_STEP = re.compile(r"\.?(?P<key>[^.\[\]]+)|\[(?P<index>\d{1,4})\]")


@dataclass
class Merged:
    """The value of all layers together. `sources` names "file:line" or the option for each leaf."""

    value: dict[str, Any] = field(default_factory=dict)
    sources: dict[Path, str] = field(default_factory=dict)

    def nearest_source(self, path: Path) -> str | None:
        """Where a value, or the nearest thing around it, was written. None when nobody wrote any of it."""
        while path and path not in self.sources:
            path = path[:-1]
        return self.sources.get(path)


def merge(documents: Sequence[Document]) -> Merged:
    """From the farthest parent to the profile itself."""
    merged = Merged()
    for index, document in enumerate(documents):
        is_last = index == len(documents) - 1
        value = {k: v for k, v in document.value.items() if k != "extends" and (is_last or k not in NOT_INHERITED)}
        _lay(merged, merged.value, value, (), document)
    return merged


def _lay(merged: Merged, below: dict[str, Any], above: dict[str, Any], path: Path, document: Document) -> None:
    for key, value in above.items():
        here = (*path, key)
        if isinstance(value, dict):
            if not isinstance(below.get(key), dict):
                _forget(merged, here)
                below[key] = {}
            merged.sources[here] = document.at(here)
            _lay(merged, below[key], value, here, document)
            continue
        _forget(merged, here)
        if value is None:
            below.pop(key, None)
            continue
        below[key] = copy.deepcopy(value)  # a later assignment must not reach into the document
        for leaf in _leaves(value, here):
            merged.sources[leaf] = document.at(leaf)


def _forget(merged: Merged, path: Path) -> None:
    for known in [known for known in merged.sources if known[: len(path)] == path]:
        del merged.sources[known]


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))


def assign(merged: Merged, setting: str) -> Fault | None:
    """Apply one `--set path=value`. Returns what is wrong with it; then nothing was changed."""
    text, equals, value_text = setting.partition("=")
    option = f"--set {text}"  # without the value: it may be a secret, and is about to be refused for that
    path = parse_path(text)
    if not equals or path is None:
        return Fault(
            "an assignment of --set cannot be read",
            "write it like: --set engine.flags.mem-fraction-static=0.8",
            at="--set",
            found=shown(setting, text),
            wanted="path=value",
        )
    value = yaml_text.read_value(value_text, option)
    target: Any = merged.value
    for depth, step in enumerate(path[:-1]):
        if isinstance(target, dict) and isinstance(step, str):
            target = target.setdefault(step, {})
        elif isinstance(target, list) and isinstance(step, int) and step < len(target):
            target = target[step]
        else:
            return _no_such_place(path[: depth + 1], target, option)
    last = path[-1]
    is_item = isinstance(target, list) and isinstance(last, int) and last < len(target)
    is_key = isinstance(target, dict) and isinstance(last, str)
    if not is_item and not is_key:
        return _no_such_place(path, target, option)
    _forget(merged, path)
    if value is None and is_key:
        target.pop(last, None)
    else:
        target[last] = value
        merged.sources |= dict.fromkeys(_leaves(value, path), option)
    return None


def parse_path(text: str) -> Path | None:
    """`pools[0].replicas.count` -> its steps; None when it is no path."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None or (found.start() == 0 and found.group().startswith((".", "["))):
            return None
        if steps and found["key"] is not None and not found.group().startswith("."):
            return None
        steps.append(found["key"] if found["key"] is not None else int(found["index"]))
        position = found.end()
    return tuple(steps) or None


def _no_such_place(path: Path, target: Any, at: str) -> Fault:
    kind = (
        f"a list of {len(target)}"
        if isinstance(target, list)
        else "a map"
        if isinstance(target, dict)
        else shown(target)
    )
    return Fault(
        f"there is no `{path_text(path)}` to set",
        "see the paths with: k3deploy profiles show NAME",
        at=at,
        found=f"{kind} at `{path_text(path[:-1])}`",
    )
