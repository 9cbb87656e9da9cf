"""Run a program of the machine and say clearly when it failed."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TAIL_LINES = 15
# root's shell may have been started without it (cron, CI)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(
    *argv: str,
    stdin: str | None = None,
    check: bool = True,
    timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `argv` to its end with its output captured; a non-zero exit is a LabError unless `check` is off."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=machine_env(env),
            cwd=cwd,
        )
    except FileNotFoundError as err:
        raise LabError(
            f"{argv[0]} is not installed",
            why=f"the lab runs {shlex.join(argv)}",
            fix="scripts/lab prepare (as root, with a package index)",
        ) from err
    except subprocess.TimeoutExpired as err:
        raise LabError(f"{shlex.join(argv)} did not finish in {timeout_s:.0f} s") from err
    if check and done.returncode != 0:
        raise LabError(f"{shlex.join(argv)} ended with {done.returncode}", why=tail(done.stderr or done.stdout))
    return done


def machine_env(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment (ours, when none is given) in which the machine's own tools are found."""
    env = dict(os.environ if base is None else base)
    env["PATH"] = os.pathsep.join(part for part in (env.get("PATH"), SYSTEM_PATH) if part)
    return env


def tail(text: str) -> str:
    """The last lines of an output: the part of a log that holds the reason."""
    return "\n".join(text.strip().splitlines()[-TAIL_LINES:])
