"""Pack a program under `k3deploy.remote` with all that it imports into one script for the node's `python3 -I -`."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from k3deploy import remote
from k3deploy.remote import loader


def script(entry: str, args: Mapping[str, Any], includes: Iterable[str] = ()) -> bytes:
    """The complete script. Arguments are inside it, so they are not visible in the node's process list."""
    packed = {name: [is_package, source] for name, is_package, source in _modules(entry, tuple(includes))}
    return loader.script(packed, entry, args).encode()


@cache
def _modules(entry: str, includes: tuple[str, ...]) -> tuple[tuple[str, bool, str], ...]:
    found: dict[str, tuple[str, bool, str]] = {"k3deploy": ("k3deploy", True, "")}
    waiting = [entry, "protocol", *includes]
    while waiting:
        name = waiting.pop()
        full = f"k3deploy.remote.{name}"
        if full in found:
            continue
        source = _source(name)
        found[full] = (full, False, source)
        waiting += loader.IMPORT.findall(source)
        for depth in range(full.count(".")):
            package = ".".join(full.split(".")[: depth + 1])
            found.setdefault(package, (package, True, ""))
    return tuple(sorted(found.values()))


def _source(name: str) -> str:
    return (Path(remote.__file__).parent / f"{name.replace('.', '/')}.py").read_text("utf-8")
