"""Make one script out of packed modules: what is sent on stdin, and what a node starts by itself as a detached job."""

import json
import re
from collections.abc import Mapping
from typing import Any

# How modules of ours import each other: what a pack must hold is found by this line.
IMPORT = re.compile(r"^from k3deploy\.remote\.([\w.]+) import ", re.MULTILINE)

# Makes the packed sources importable under their real names on a machine that has no k3deploy.
_LOADER = """\
import importlib, importlib.abc, importlib.util, json, sys
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
importlib.import_module("k3deploy.remote." + SERVER).serve(ENTRY, ARGS)
"""


def script(modules: Mapping[str, Any], entry: str, args: Mapping[str, Any], *, server: str = "protocol") -> str:
    """A complete Python script. `modules`: name -> [is_package, source]; `server`: the module whose `serve` runs it.

    Arguments are inside the script, so they are not visible in the node's process list.
    """
    # JSON in a Python string literal: repr of text is always one valid literal.
    head = f"MODULES = __import__('json').loads({json.dumps(modules)!r})\n"
    tail = f"ENTRY = {entry!r}\nSERVER = {server!r}\nARGS = __import__('json').loads({json.dumps(args)!r})\n"
    return head + tail + _LOADER


def part(modules: Mapping[str, Any], entry: str) -> dict[str, Any]:
    """What `entry` needs of packed modules: a process that does one thing need not be sent the rest."""
    found: dict[str, Any] = {name: module for name, module in modules.items() if module[0]}
    waiting = [entry, "protocol"]
    while waiting:
        name = f"k3deploy.remote.{waiting.pop()}"
        if name not in found:
            found[name] = modules[name]
            waiting += IMPORT.findall(modules[name][1])
    return found
