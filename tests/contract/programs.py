"""Small programs for nodes, sent exactly as k3deploy's own ones are, to see what arrives and what comes back."""

from collections.abc import Iterable, Mapping
from typing import Any

from k3deploy.adapters import bundle

SOURCES = {
    "echo": """
def main(args, say):
    return {"args": args}
""",
    "steps": """
def main(args, say):
    for number in range(args["count"]):
        say({"step": number})
    return {"done": args["count"]}
""",
    "refuse": """
from k3deploy.remote.protocol import Refusal
def main(args, say):
    raise Refusal("120 GiB free on /models, 640 GiB needed", why="it is small", fix="a larger disk", free_gib=120)
""",
    "broken": """
def main(args, say):
    return {}[args["missing"]]
""",
    "dies": """
import os
def main(args, say):
    say({"step": 0})
    os._exit(3)
""",
    "hangs": """
import time
def main(args, say):
    say({"step": 0})
    time.sleep(20)
""",
    "noisy": """
import sys
def main(args, say):
    print("Welcome to GPUCloud!")
    sys.stdout.write("no end of line: ")
    print("a warning", file=sys.stderr)
    return {"value": 1410000000000}
""",
    "big": """
def main(args, say):
    return {"text": "x" * args["size"]}
""",
    "lacking": """
import a_module_that_is_not_there
def main(args, say):
    return {}
""",
}


def pack(entry: str, args: Mapping[str, Any], _includes: Iterable[str] = ()) -> bytes:
    """As `bundle.script`, with one of these programs in the place of `survey`."""
    script = bundle.script("survey", args).decode()
    mark = "ENTRY = 'survey'\n"
    assert script.count(mark) == 1
    module = f"MODULES['k3deploy.remote.{entry}'] = [False, {SOURCES[entry]!r}]\n"
    return script.replace(mark, f"{module}ENTRY = {entry!r}\n").encode()
