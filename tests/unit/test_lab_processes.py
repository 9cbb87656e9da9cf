"""Ending processes: ours, and never a stranger with a recycled pid."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.lab.deadline import wait_for
from tests.lab.errors import LabError
from tests.lab.processes import START_FIELD, Started, after_name, spawn, start_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[str]]:
    """A process that is not ours to end."""
    with subprocess.Popen([sys.executable, "-c", WAIT], stdin=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_a_recycled_pid_is_left_alone(stranger: subprocess.Popen[str]) -> None:
    now = start_ticks(stranger.pid)
    assert now is not None
    before = Started(stranger.pid, now - 1)
    assert not before.is_alive()
    before.end(grace_s=0)
    assert stranger.poll() is None


def test_a_process_of_ours_is_ended(tmp_path: Path) -> None:
    process = spawn([sys.executable, "-c", "import signal; signal.pause()"], log=tmp_path / "log", env=os.environ)
    assert process.is_alive()
    process.end(grace_s=10)
    assert not process.is_alive()


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", DEAF], log=log, env=os.environ)
    wait_for("the program has begun", lambda: "ready" in log.read_text(), 30)
    process.end(grace_s=0.1)
    assert not process.is_alive()


def test_an_ended_process_is_no_longer_alive(tmp_path: Path) -> None:
    process = spawn([sys.executable, "-c", "print('bye')"], log=tmp_path / "log", env=os.environ)
    wait_for("it has ended", lambda: not process.is_alive(), 30)
    assert (tmp_path / "log").read_text() == "bye\n"


def test_no_process_no_start_time() -> None:
    assert start_ticks(2**22 + 1) is None


@pytest.mark.parametrize("name", ["sh", "a b", "x) S 1 (y", ")"])
def test_the_program_name_can_hold_anything(name: str) -> None:
    fields = [str(number) for number in range(3, 53)]
    assert after_name(f"7 ({name}) {' '.join(fields)}")[START_FIELD] == "22"


def test_a_missing_program_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no-such-program is not installed"):
        spawn(["no-such-program"], log=tmp_path / "log", env={"PATH": "/usr/bin"})
