"""Does a value have the shape of a model? Every fault at once, each with path, found, wanted and what to write."""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from k3deploy.domain.faults import Fault, Path, path_text, shown
from k3deploy.domain.profile import schema
from k3deploy.domain.secret_text import looks_secret

Shape = TypeVar("Shape", bound=BaseModel)

_QUOTE = "put the value in quotes"

# pydantic's error type -> what it wants, in our words, and how to get there.
_WANTED: dict[str, tuple[str, str]] = {
    "int_type": ("a whole number", "write a number without quotes"),
    "int_from_float": ("a whole number", "write a number without a fraction"),
    "float_type": ("a number", "write a number without quotes"),
    "string_type": ("text", _QUOTE),
    "bool_type": ("true or false", "write true or false without quotes"),
    "tuple_type": ("a list", "write a list: [a, b], or one `- item` a line"),
    "dict_type": ("keys and values", "write `key: value` lines below it"),
    "model_type": ("keys and values", "write `key: value` lines below it"),
    "model_attributes_type": ("keys and values", "write `key: value` lines below it"),
}

# Texts whose pattern would tell a person nothing.
_FORMS = {
    "repo": "owner/name",
    "revision": "a full commit: 40 hex digits",
    "image": "repository:tag",
    "digest": "sha256: and 64 hex digits",
    "mount": "an absolute path",
    "docker_root": "an absolute path",
    "hf_home": "an absolute path",
    "name": "a name of letters, digits and dashes",
}
_FORM_FIXES = {
    "revision": "`main` may move between two downloads: give the commit that the Hub shows under Files > History",
    "image": "a digest goes to engine.digest, and is settled by the first pull when it is null",
}


def build(
    model: type[Shape], value: dict[str, Any], at: Callable[[Path], str], where: str
) -> tuple[Shape | None, list[Fault]]:
    """The model, or None and what is wrong. `where` names the file in messages about its top level."""
    faults = list(_secrets(value, (), at))
    try:
        # Through JSON: there pydantic takes lists for tuples and still refuses "4" for a number.
        return model.model_validate_json(json.dumps(value)), faults
    except ValidationError as err:
        told = {fault.path for fault in faults}
        found = [_fault(model, detail, at, where) for detail in err.errors(include_url=False)]
        # pydantic also blames a list for the items that it refused: those say enough.
        told |= {fault.path[:size] for fault in found for size in range(len(fault.path))}
        return None, faults + [fault for fault in found if fault.path not in told]


def _secrets(value: Any, path: Path, at: Callable[[Path], str]) -> Iterator[Fault]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _secrets(item, (*path, key), at)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets(item, (*path, index), at)
    elif path and looks_secret(str(path[-1]), value):
        yield Fault(
            f"`{path[-1]}` holds what looks like a secret",
            "remove it and revoke it if it was shared; the Hub token is read from HF_TOKEN or `hf auth login`, "
            "an API key is made by k3deploy",
            path=path,
            at=at(path),
            found=f"{len(value)} characters, not shown",
            why="a file like this names where a secret is, never its value",
        )


def _fault(model: type[BaseModel], detail: ErrorDetails, at: Callable[[Path], str], where: str) -> Fault:
    path: Path = tuple(detail["loc"])
    kind = detail["type"]
    key = str(path[-1]) if path else where
    if kind == "missing":
        inside = path_text(path[:-1]) or where
        return Fault(f"`{key}` is missing in {inside}", f"add `{key}:` there", path=path, at=at(path))
    if kind == "extra_forbidden":
        inside = path_text(path[:-1]) or where
        what = f"`{key}` is not a key of {inside}"
        return Fault(what, schema.suggestion(model, path), path=path, at=at(path))
    wanted, fix = _wanted(kind, detail, key)
    found = shown(detail["input"], key)
    return Fault(f"`{key}` is not {_article(wanted)}", fix, path=path, at=at(path), found=found, wanted=wanted)


def _wanted(kind: str, detail: ErrorDetails, key: str) -> tuple[str, str]:
    context = detail.get("ctx", {})
    if kind in _WANTED:
        return _WANTED[kind]
    if kind == "literal_error":
        return f"one of {context['expected']}", "write one of them"
    if kind in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
        words = {
            "greater_than_equal": ("at least", "ge"),
            "greater_than": ("more than", "gt"),
            "less_than_equal": ("at most", "le"),
            "less_than": ("less than", "lt"),
        }
        word, limit = words[kind]
        return f"{word} {context[limit]:g}", "write a number in these limits"
    if kind == "string_pattern_mismatch":
        form = _FORMS.get(key, f"text of the form {context['pattern']}")
        return form, _FORM_FIXES.get(key, "write it in this form")
    if kind in ("too_short", "string_too_short"):
        return f"at least {context['min_length']} long", "write at least one"
    return str(detail["msg"]), "correct it"


def _article(wanted: str) -> str:
    return "what is wanted here" if wanted.startswith(("one of", "at ", "more ", "less ")) else wanted
