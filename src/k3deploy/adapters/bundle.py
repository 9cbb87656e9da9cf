"""Pack a program under `k3deploy.remote` with all that it imports into one script for the node's `python3 -I -`."""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from k3deploy import remote

_IMPORT = re.compile(r"^from k3deploy\.remote\.([\w.]+) import ", re.MULTILINE)

# Makes the packed sources importable under their real names on a machine that has no k3deploy.
_LOADER = """\
import importlib.abc, importlib.util, json, sys
class _Packed(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self, is_package=MODULES[name][0]) if name in MODULES else None
    def get_source(self, name):
        return MODULES[name][1]
    def is_package(self, name):
        return MODULES[name][0]
sys.meta_path.insert(0, _Packed())
sys.dont_write_bytecode = True
from k3deploy.remote import protocol
protocol.packed_modules = MODULES
protocol.serve(ENTRY, ARGS)
"""


def script(entry: str, args: Mapping[str, Any], includes: Iterable[str] = ()) -> bytes:
    """The complete script. Arguments are inside it, so they are not visible in the node's process list."""
    packed = {name: [is_package, source] for name, is_package, source in _modules(entry, tuple(includes))}
    # JSON in a Python string literal: repr of text is always one valid literal.
    head = f"MODULES = __import__('json').loads({json.dumps(packed)!r})\n"
    tail = f"ENTRY = {entry!r}\nARGS = __import__('json').loads({json.dumps(args)!r})\n"
    return (head + tail + _LOADER).encode()


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
        waiting += _IMPORT.findall(source)
        for depth in range(full.count(".")):
            package = ".".join(full.split(".")[: depth + 1])
            found.setdefault(package, (package, True, ""))
    return tuple(sorted(found.values()))


def _source(name: str) -> str:
    return (Path(remote.__file__).parent / f"{name.replace('.', '/')}.py").read_text("utf-8")
