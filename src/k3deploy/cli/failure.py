"""How an error is shown, once, for people or programs."""

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from k3deploy.cli.output import put
from k3deploy.domain.errors import Bug, Interrupted, K3Error, OutputError, PhaseFailed, ProfileFaults


@contextmanager
def followed_by(last_line: Callable[[], str]) -> Iterator[None]:
    """An error raised within is shown with this, asked for then, as its very last line (and as `note` in JSON)."""
    try:
        yield
    except K3Error as error:
        error.add_note(last_line())
        raise
    except KeyboardInterrupt as error:
        stopped = Interrupted(what="interrupted", fix="run the same command again")
        stopped.add_note(last_line())
        raise stopped from error
    except Exception as error:
        bug = Bug.of(error)
        bug.add_note(last_line())
        raise bug from error


def report(error: K3Error, *, wants_json: bool) -> int:
    """Print the error (stderr; JSON goes to stdout as the command's result) and return its exit code."""
    if wants_json:
        body = {"error": error.as_dict(), "notes": _notes(error)}
        with suppress(OutputError):  # the exit code tells it all the same
            put(json.dumps(body, indent=2, default=str) + "\n")
    else:
        if os.environ.get("K3DEPLOY_DEBUG") == "1":
            traceback.print_exception(error)
            for failure in getattr(error, "failures", ()):
                traceback.print_exception(failure)
        sys.stderr.write("\n".join([text(error), *_notes(error)]) + "\n")
    return error.exit_code


def _notes(error: K3Error) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def text(error: K3Error) -> str:
    """`error[CODE] what`, then why, the facts, and what to type next."""
    if isinstance(error, PhaseFailed | ProfileFaults) and error.failures:
        blocks = [text(failure) for failure in error.failures]
        return "\n".join([*blocks, _one(error)])
    return _one(error)


def _one(error: K3Error) -> str:
    head = error.what if isinstance(error, Interrupted) else f"error[{error.code}] {error.what}"
    lines = [head]
    if error.why:
        lines.append(f"  why: {error.why}")
    lines += [f"  {name}: {value}" for name, value in error.context.items() if value not in (None, "")]
    lines.append(f"  fix: {error.fix}")
    return "\n".join(lines)
