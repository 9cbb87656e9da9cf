"""What differs between two inventories of a node, less what a checked-in list allows, each entry with its reason."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

ALLOWED = Path(__file__).with_name("inventory_allowed.txt")


def allowed_after_teardown() -> tuple[str, ...]:
    """Patterns over the lines that `difference` gives. A line of the file is `pattern  # reason`."""
    lines = ALLOWED.read_text().splitlines()
    return tuple(line.split("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#"))


def difference(before: Mapping[str, object], after: Mapping[str, object], allowed: Sequence[str] = ()) -> list[str]:
    """Lines such as `files + /etc/x`, `files ~ /etc/y: sha256`, `docker/images - sha256:...`."""
    found = [line for section in sorted({*before, *after}) for line in _changes(section, before, after)]
    return [line for line in found if not any(fnmatchcase(line, pattern) for pattern in allowed)]


def _changes(section: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    old, new = before.get(section), after.get(section)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            if isinstance(old.get(key), list) or isinstance(new.get(key), list):
                yield from _changes_of_lists(f"{section}/{key}", old.get(key) or [], new.get(key) or [])
            elif key not in old:
                yield f"{section} + {key}"
            elif key not in new:
                yield f"{section} - {key}"
            elif old[key] != new[key]:
                yield f"{section} ~ {key}: {_what(old[key], new[key])}"
    elif isinstance(old, list) and isinstance(new, list):
        yield from _changes_of_lists(section, old, new)
    elif old != new:
        yield f"{section} ~ {old} -> {new}"


def _changes_of_lists(section: str, old: Sequence[object], new: Sequence[object]) -> Iterator[str]:
    yield from (f"{section} - {item}" for item in old if item not in new)
    yield from (f"{section} + {item}" for item in new if item not in old)


def _what(old: object, new: object) -> str:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return ", ".join(sorted(key for key in {*old, *new} if old.get(key) != new.get(key)))
    return f"{old} -> {new}"
