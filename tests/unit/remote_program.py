"""Run programs of `k3deploy.remote` the way a node does: one script on stdin of a bare `python3 -I -`."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3deploy.adapters.bundle import script

_TIMEOUT_S = 120


@dataclass(frozen=True)
class Ran:
    """How a program ended: its exit code and its JSON lines."""

    exit_code: int
    lines: Sequence[Mapping[str, Any]]
    stderr: str

    @property
    def result(self) -> Any:
        assert self.exit_code == 0, (self.lines[-1:], self.stderr)
        return self.lines[-1]["result"]

    @property
    def error(self) -> Mapping[str, Any]:
        assert self.exit_code == 10, (self.exit_code, self.lines[-1:], self.stderr)
        error: Mapping[str, Any] = self.lines[-1]["error"]
        return error

    @property
    def progress(self) -> list[Mapping[str, Any]]:
        return [line["progress"] for line in self.lines if "progress" in line]


def start(
    entry: str, args: Mapping[str, Any], includes: Sequence[str] = (), python: str = sys.executable, **popen: Any
) -> "subprocess.Popen[bytes]":
    """Start it and leave it running; its output can be read."""
    process = subprocess.Popen(
        [python, "-I", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **popen,
    )
    assert process.stdin is not None
    process.stdin.write(script(entry, args, includes))
    process.stdin.close()
    process.stdin = None
    return process


def finish(process: "subprocess.Popen[bytes]") -> Ran:
    stdout, stderr = process.communicate(timeout=_TIMEOUT_S)
    lines = [json.loads(line) for line in stdout.decode().splitlines()]
    return Ran(process.returncode, lines, stderr.decode())


def run(entry: str, args: Mapping[str, Any], includes: Sequence[str] = (), **popen: Any) -> Ran:
    return finish(start(entry, args, includes, **popen))


def section(name: str, /, **args: Any) -> Any:
    """Ask one section of the survey, as the survey program does."""
    asked = {"questions": [{"section": name, "args": args}]}
    return run("survey", asked, (f"sections.{name}",)).result["answers"][0]["answer"]


def let_others_in(folder: Path) -> None:
    """Another user may reach a temporary folder of ours: pytest makes the folders above it for us alone."""
    for each in (folder, *folder.parents):
        if not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o055)


def until(holds: Callable[[], Any], what: str, timeout_s: float = 30.0) -> Any:
    """Wait for something to become true, with a deadline."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = holds()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"after {timeout_s} s still not: {what}")
