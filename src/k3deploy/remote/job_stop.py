"""End a detached job and prove that it is gone. Idempotent: a job that does not run is not an error."""

import contextlib
import os
import signal
import subprocess
import time
from typing import Any

from k3deploy.remote.job import process_start
from k3deploy.remote.job_folder import JobFolder
from k3deploy.remote.job_start import has_systemd
from k3deploy.remote.protocol import Refusal, Say

_POLL_S = 0.1


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: id, dir, optionally grace_s, kill_s. Returns {"was_running"}; raises Refusal when the job stays."""
    folder = JobFolder(args["dir"])
    grace_s = float(args.get("grace_s", 30.0))
    was_running = folder.is_running()
    if was_running:
        if has_systemd():
            _systemctl("stop", "k3deploy-" + args["id"], grace_s)
        _signal(folder, signal.SIGTERM)
        if not _is_gone(folder, grace_s):
            _signal(folder, signal.SIGKILL)
        if not _is_gone(folder, float(args.get("kill_s", 5.0))):
            raise Refusal(
                f"the job {args['id']} cannot be ended",
                why="it still holds its lock after SIGKILL",
                fix=f"look for a process that waits for a broken disk, then remove {folder.path}",
                path=folder.path,
            )
    folder.remove("secrets.json")
    return {"was_running": was_running}


def _systemctl(verb: str, unit: str, grace_s: float) -> None:
    # Where the job was started without systemd there is no such unit: the signal below does it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["systemctl", verb, unit], capture_output=True, check=False, timeout=grace_s + 35.0)


def _signal(folder: JobFolder, number: int) -> None:
    process = folder.read("process.json")
    if process is None or process_start(process["pid"]) != process["started"]:
        return  # that number belongs to somebody else by now
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL and os.getsid(process["pid"]) == process["pid"]:
            os.killpg(process["pid"], number)
        else:
            os.kill(process["pid"], number)


def _is_gone(folder: JobFolder, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while folder.is_running():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
