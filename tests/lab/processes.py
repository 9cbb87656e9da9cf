"""Start processes that outlive us, and end exactly those, never a stranger that got a recycled pid."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lab.cgroups import Cgroup

STATE_FIELD = 0
START_FIELD = 19
# A process that can't join (its lab went down meanwhile) does not run.
JOIN_THEN_RUN = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@dataclass(frozen=True)
class Started:
    """A process we started: a pid alone names a different process tomorrow, pid and start time don't."""

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks

    def send(self, number: signal.Signals) -> None:
        """Signal the process if it is still the one we started."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, grace_s: float) -> None:
        """SIGTERM, then SIGKILL for one that does not listen; returns when it is gone."""
        self.send(signal.SIGTERM)
        if not self._gone_within(grace_s):
            self.send(signal.SIGKILL)
            if not self._gone_within(grace_s):
                raise LabError(f"process {self.pid} is still there after SIGKILL")

    def _gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        return True


def start_ticks(pid: int) -> int | None:
    """When the process with this pid started, in clock ticks since boot; None when there is none (or only a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = after_name(stat)
    return None if fields[STATE_FIELD] in "ZX" else int(fields[START_FIELD])


def after_name(stat: str) -> list[str]:
    """The fields of /proc/PID/stat behind the program's name, which may itself hold blanks and parentheses."""
    return stat.rpartition(")")[2].split()


def spawn(argv: Sequence[str], *, log: Path, env: Mapping[str, str], cgroup: Cgroup | None = None) -> Started:
    """Start a process in a session of its own, output to `log`, inside `cgroup` before its program begins.

    Not subprocess.Popen: it is meant to outlive us, which a Popen object takes for a mistake. A thread reaps it if it
    ends first.
    """
    if cgroup is not None:
        argv = ["sh", "-c", JOIN_THEN_RUN, str(cgroup.path), *argv]
    program = _which(argv[0], env)
    log.parent.mkdir(parents=True, exist_ok=True)
    pid = os.posix_spawn(
        program,
        list(argv),
        dict(env),
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    started = Started(pid, start_ticks(pid) or 0)
    if cgroup is not None:
        with contextlib.suppress(ProcessLookupError):
            cgroup.add(pid)  # it does so itself too, in case we are killed here; so that our caller finds it there
    threading.Thread(target=_reap, args=(pid,), name=f"reap {pid}", daemon=True).start()
    return started


def _which(program: str, env: Mapping[str, str]) -> str:
    for folder in os.get_exec_path(dict(env)):
        candidate = Path(folder) / program
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return str(candidate)
    raise LabError(f"{program} is not installed", fix="scripts/lab prepare (as root, with a package index)")


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
