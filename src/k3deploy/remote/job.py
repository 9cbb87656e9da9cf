"""The inside of a detached job: run a program of ours with its words going to files instead of a connection."""

import contextlib
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

from k3deploy.remote.job_folder import JobFolder
from k3deploy.remote.protocol import Refusal

# This module as `loader.script` names it.
SERVER = "job"

# Progress is for people and for a watcher that looks about once a second: more would only wear the disk.
_PROGRESS_EVERY_S = 0.5
_OPEN_FILES = 65536


class Stopped(BaseException):
    """SIGTERM. Not an Exception, so that no handler in between takes it for a failure that can be retried."""


def serve(entry: str, args: dict[str, Any]) -> NoReturn:
    """Run `k3deploy.remote.<entry>` as the job in folder `args["dir"]`. Exits 0 with a result, 10, 11 or 15 without."""
    folder = JobFolder(args["dir"])
    if folder.hold() is None:
        sys.exit(0)  # this job runs already, which is all that was wanted
    _print_to_log(folder)
    _raise_file_limit()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    folder.keep_room()
    folder.write("process.json", {"pid": os.getpid(), "started": process_start(os.getpid())})
    body, code = _outcome(folder, entry)
    folder.write_last("result.json", {**body, "at": time.time()})
    sys.exit(code)


def process_start(pid: int) -> str | None:
    """The kernel's start time of a process, which tells it from a later one with the same number; None: no such."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The command name may hold spaces and brackets; the fields after its last bracket are plain.
            return file.read().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _outcome(folder: JobFolder, entry: str) -> tuple[dict[str, Any], int]:
    try:
        args = {**(folder.read("args.json") or {}), "secrets": folder.read("secrets.json") or {}}
        folder.remove("secrets.json")
        module = importlib.import_module("k3deploy.remote." + entry)
        return {"result": module.main(args, _Progress(folder))}, 0
    except Refusal as refusal:
        error = {"what": refusal.what, "why": refusal.why, "fix": refusal.fix, "context": refusal.context}
        return {"error": error}, 10
    except Stopped:
        error = {"what": "the job was stopped", "why": "somebody ended it", "fix": "run the same command again"}
        return {"error": {**error, "context": {}}}, 15
    except BaseException as error:  # noqa: BLE001 - whatever broke, the result file must say so; the trace is in the log
        traceback.print_exc()
        return {"fault": f"{type(error).__name__}: {error}"}, 11
    finally:
        folder.remove("secrets.json")


class _Progress:
    """The `say` of a job: keeps the last word in progress.json, at most twice a second."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._written = float("-inf")
        self._count = 0

    def __call__(self, progress: dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self._written < _PROGRESS_EVERY_S:
            return
        self._written = now
        self._count += 1
        with contextlib.suppress(OSError):  # a full disk is for the job itself to notice, and to say
            self._folder.write("progress.json", {"count": self._count, "progress": progress})


def _stop(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: a second one must not cut the tidying up short
    raise Stopped


def _print_to_log(folder: JobFolder) -> None:
    log = os.open(folder.file("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _raise_file_limit() -> None:
    """A download holds many connections and files open; the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
