"""How an error is shown, once, for people or programs."""

import json
import sys

from k3deploy.domain.errors import Interrupted, K3Error, PhaseFailed, ProfileFaults


def report(error: K3Error, *, wants_json: bool) -> int:
    """Print the error (stderr; JSON goes to stdout as the command's result) and return its exit code."""
    if wants_json:
        json.dump({"error": error.as_dict()}, sys.stdout, indent=2, default=str)
        sys.stdout.write("\n")
    else:
        sys.stderr.write(text(error) + "\n")
    return error.exit_code


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
