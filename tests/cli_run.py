"""Run the command line in this process, in a folder, and keep what it said."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from k3deploy.cli.app import run


@dataclass(frozen=True)
class Said:
    exit_code: int
    stdout: str
    stderr: str


def k3deploy(argv: Sequence[str], folder: Path) -> Said:
    """`argv` without the program's name. The process's own folder is restored at the end."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(argv)
    return Said(code, out.getvalue(), err.getvalue())
