"""Docker's daemon.json with our keys merged in: everything else in it stays as somebody wanted it. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3deploy.domain.errors import NodeError

_BOM = "\ufeff"


@dataclass(frozen=True)
class Merged:
    """The new text, whether it says anything new, and what a person should hear about the old one."""

    text: str
    is_changed: bool
    notes: tuple[str, ...] = ()


def merge(old: bytes | None, wanted: Mapping[str, Any], *, path: str) -> Merged:
    """Set `wanted` in the file's text (None: there is no file); objects are merged, other values replaced.

    An empty file and a byte order mark are taken for what was meant, and said. Raises NodeError for anything that is
    not one JSON object: the daemon (Docker 20.10 to 26.1) would not start with it, and what was meant is not for us to
    guess. The error's text lacks the node's name: the caller adds it.
    """
    text, notes = _decoded(old, path)
    body = _parsed(text, path) if text.strip() else {}
    if old is not None and not text.strip():
        notes = (*notes, f"{path} was empty")
    merged = _merged(body, wanted)
    if merged == body and not notes and old is not None:
        return Merged(text, is_changed=False)
    replaced = tuple(
        f"{name} was {json.dumps(body[name])}"
        for name in wanted
        if name in body and body[name] != merged[name] and not isinstance(body[name], dict)
    )
    kept = len([name for name in body if name not in wanted])
    kept_note = (f"{kept} other keys kept",) if kept else ()
    return Merged(json.dumps(merged, indent=2) + "\n", is_changed=True, notes=(*notes, *replaced, *kept_note))


def value_of(old: bytes | None, name: str, *, path: str) -> Any:
    """One value of the file as it is; None where it has none. Raises NodeError as `merge` does."""
    text, _ = _decoded(old, path)
    return _parsed(text, path).get(name) if text.strip() else None


def _merged(body: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(body)
    for name, value in wanted.items():
        there = result.get(name)
        both_objects = isinstance(value, Mapping) and isinstance(there, dict)
        result[name] = _merged(there, value) if both_objects and isinstance(there, dict) else value
    return result


def _decoded(old: bytes | None, path: str) -> tuple[str, tuple[str, ...]]:
    try:
        text = (old or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise _fault(path, f"byte {error.start} is not UTF-8", "") from error
    if text.startswith(_BOM):
        return text.removeprefix(_BOM), (f"{path} began with a byte order mark, which is removed",)
    return text, ()


def _parsed(text: str, path: str) -> dict[str, Any]:
    try:
        body = json.loads(text, object_pairs_hook=_no_twins)
    except json.JSONDecodeError as error:
        row = text.splitlines()[error.lineno - 1] if text.splitlines() else ""
        raise _fault(path, f"line {error.lineno}, column {error.colno}: {_reason(error, text)}", row) from error
    except ValueError as error:
        raise _fault(path, str(error), "") from error
    if not isinstance(body, dict):
        raise _fault(path, f"it holds a {type(body).__name__}, not an object", text.strip())
    return body


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name, value in pairs:
        if name in body:
            raise ValueError(f"the key {name!r} is there twice")
        body[name] = value
    return body


def _reason(error: json.JSONDecodeError, text: str) -> str:
    """What people mostly got wrong, instead of what the parser expected."""
    rest = text[error.pos :].lstrip()
    if rest.startswith(("//", "/*", "#")):
        return "a comment, which JSON does not have"
    # CPython 3.13 points at the comma itself, earlier versions behind it.
    before = text[: error.pos].rstrip()
    if (rest.startswith(("}", "]")) and before.endswith(",")) or rest.startswith(","):
        return "a comma with nothing after it"
    return error.msg


def _fault(path: str, found: str, row: str) -> NodeError:
    return NodeError(
        what=f"{path} is not valid JSON",
        why="the Docker daemon could not start with it, and we do not guess what it was meant to say",
        fix=f"correct {path} on the node, or remove it, then run the same command again",
        context={"path": path, "found": found, "line": row},
    )
