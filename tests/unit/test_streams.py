"""Standard streams that are closed, full or left by their reader change neither the work nor its exit code."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO, cast

import pytest

from k3deploy.cli.console import PlainConsole, _write
from k3deploy.cli.streams import Unbroken, steady_streams
from k3deploy.domain import events as ev


def sh(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What /bin/sh does with k3deploy as "$@"."""
    argv = ["/bin/sh", "-c", script, "sh", sys.executable, "-m", "k3deploy"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **env}, timeout=60)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_cost_nothing_but_the_words(closed: str) -> None:
    done = sh(f'("$@" profiles list {closed}); echo "code $?"')
    assert done.stdout.endswith("code 0\n")
    assert "K3-BUG" not in done.stderr


def test_an_error_keeps_its_exit_code_without_stderr() -> None:
    assert sh('("$@" profiles show nope 2>&-); echo "code $?"').stdout == "code 1\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_result_that_finds_no_room_is_told_and_fails() -> None:
    done = sh('"$@" profiles list >/dev/full')
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == "error[K3-OUTPUT-001] the result could not be written to stdout"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_an_error_in_json_that_finds_no_room_keeps_its_exit_code() -> None:
    assert sh('"$@" profiles show nope --output json >/dev/full').returncode == 1


def test_a_node_name_that_the_locale_lacks_is_escaped() -> None:
    done = sh('"$@" profiles show "näme"', LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 1
    assert "K3-BUG" not in done.stderr


def test_progress_goes_on_without_a_reader() -> None:
    """A console whose reader has left: events are still folded, and none of them fails the unit that emitted it."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as left:
        stream = cast("TextIO", Unbroken(left))
        console = PlainConsole(lambda line: _write(stream, line))
        for step in ("one", "two"):
            console.emit(ev.StepStarted(at=1.0, phase="launch", target="serve-0", step=step))
    assert console.state.unit("launch", "serve-0").step == "two"


def test_the_streams_are_put_back() -> None:
    before = sys.stdin, sys.stdout, sys.stderr
    with steady_streams():
        assert isinstance(sys.stderr, Unbroken)
    assert (sys.stdin, sys.stdout, sys.stderr) == before
