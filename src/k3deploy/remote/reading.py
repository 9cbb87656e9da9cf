"""Small readers for facts: a text file, a tool's output, a tool's place. What can't be read is a reason, no guess."""

import os
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Value = TypeVar("Value")

TOOL_TIMEOUT_S = 20.0
# Where system tools live, whatever PATH the login or sudo left us with.
TOOL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Unreadable(Exception):
    """A fact is not to be had; the text says why, for people."""


class ToolRun(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


class Reader:
    """Reads facts one by one; one that can't be read becomes None, and `reasons` says why under the same name."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def read(self, name: str, ask: Callable[[], Value]) -> Value | None:
        try:
            return ask()
        except Unreadable as reason:
            self.reasons[name] = str(reason)
        except (OSError, ValueError, KeyError, IndexError) as error:
            self.reasons[name] = f"{type(error).__name__}: {error}"
        return None


def text(path: str) -> str:
    """The whole of a small file; undecodable bytes are replaced, as vendors put anything into /sys."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def line(path: str) -> str:
    return text(path).strip()


def names(folder: str) -> list[str]:
    """Sorted entries of a folder; a folder that does not exist has none."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unreadable(f"{folder}: {error.strerror}") from error


def which(program: str, path: str = TOOL_PATH) -> str | None:
    """shutil.which without shutil, which a minimal Python lacks."""
    for folder in path.split(":"):
        candidate = os.path.join(folder, program)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def start(argv: list[str]) -> "subprocess.Popen[str]":
    """Start a tool whose output will be parsed: English, no input. Raises Unreadable when it isn't there."""
    if which(argv[0]) is None and not os.path.isabs(argv[0]):
        raise Unreadable(f"{argv[0]} is not installed (looked in {TOOL_PATH})")
    environment: dict[str, Any] = {**os.environ, "LC_ALL": "C", "PATH": TOOL_PATH}
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise Unreadable(f"{argv[0]}: {error.strerror}") from error


def finish(process: "subprocess.Popen[str]", timeout_s: float = TOOL_TIMEOUT_S) -> ToolRun:
    """Wait for a tool; one that hangs is killed, as a wedged driver must not wedge the survey."""
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as late:
        process.kill()
        process.communicate()
        raise Unreadable(f"{_name(process)} gave no answer within {timeout_s:g} s") from late
    return ToolRun(process.returncode, stdout, stderr)


def _name(process: "subprocess.Popen[str]") -> str:
    return str(process.args[0]) if isinstance(process.args, list) else str(process.args)


def tool(argv: list[str], timeout_s: float = TOOL_TIMEOUT_S) -> ToolRun:
    return finish(start(argv), timeout_s)


def tool_output(argv: list[str], timeout_s: float = TOOL_TIMEOUT_S) -> str:
    """Standard output of a tool that must succeed; otherwise its own words are the reason."""
    done = tool(argv, timeout_s)
    if done.exit_code != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Unreadable(f"{argv[0]} ended with {done.exit_code}: {words[-1] if words else 'no message'}")
    return done.stdout
