"""How a program of ours talks: JSON lines on stdout, the last one a result or an error. Runs on the node."""

import importlib
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

Say = Callable[[dict[str, Any]], None]

# Name -> [is_package, source] of this very bundle: a detached job is started from a copy of it.
packed_modules: dict[str, list[Any]] = {}


class Refusal(Exception):
    """The program cannot go on, and says what / why / fix. `context` holds found, wanted, path and the like."""

    def __init__(self, what: str, *, why: str = "", fix: str, **context: Any) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.context = context


def _line(body: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(body, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def serve(entry: str, args: dict[str, Any]) -> NoReturn:
    """Run `k3deploy.remote.<entry>` and exit 0 with a result, 10 with a refusal, 11 with a fault of ours."""
    try:
        module = importlib.import_module("k3deploy.remote." + entry)
        result = module.main(args, lambda progress: _line({"progress": progress}))
    except Refusal as refusal:
        _line({"error": {"what": refusal.what, "why": refusal.why, "fix": refusal.fix, "context": refusal.context}})
        sys.exit(10)
    except BaseException as error:  # noqa: BLE001 - the operator must get a reason, whatever broke; the trace goes to stderr
        traceback.print_exc()
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        _line({"fault": f"{type(error).__name__}: {error}", "missing_module": missing})
        sys.exit(11)
    _line({"result": result})
    sys.exit(0)
