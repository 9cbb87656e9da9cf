"""Answer several questions about this node in one run. Reads only; a section that fails does not hide the others."""

import importlib
import json
from typing import Any

from k3deploy.remote.protocol import Refusal, Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args["questions"]`: [{"section": name, "args": {...}}]; the answers come back in the same order."""
    return {"answers": [_answer(question) for question in args["questions"]]}


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    section = importlib.import_module("k3deploy.remote.sections." + question["section"])
    try:
        answer: dict[str, Any] = section.answer(question["args"])
    except Refusal as refusal:
        return {"refusal": {"what": refusal.what, "why": refusal.why, "fix": refusal.fix, "context": refusal.context}}
    json.dumps(answer)  # a section that returns what JSON cannot carry must fail here, with its own name in the trace
    return {"answer": answer}
