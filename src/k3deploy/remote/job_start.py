"""Start a detached job unless it runs already: as a transient systemd unit, or in a session of its own without systemd.

Either way it outlives the connection. Two starts at the same moment give one job.
"""

import fcntl
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from typing import Any

from k3deploy.remote import protocol
from k3deploy.remote.job import SERVER
from k3deploy.remote.job_folder import JobFolder, write_atomically
from k3deploy.remote.loader import script
from k3deploy.remote.own_folder import login_user, make
from k3deploy.remote.protocol import Refusal, Say

_START_WITHIN_S = 20.0
_POLL_S = 0.05


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: id, dir, entry (a packed module), args for it, and optionally user, secrets.

    Returns {"state", "is_new", "unit"}; `unit` is None without systemd. Raises Refusal when it does not come up.
    """
    owner = login_user(args.get("user"))
    make(args["dir"], owner)
    folder = JobFolder(args["dir"])
    unit = "k3deploy-" + args["id"]
    with open(folder.file("start.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_running():
            return {"state": "running", "is_new": False, "unit": unit if has_systemd() else None}
        _lay_out(folder, args, owner)
        try:
            if has_systemd():
                _start_unit(unit, folder, owner)
            else:
                _start_session(folder, owner)
            _wait_until_alive(folder, unit)
        except BaseException:
            folder.remove("secrets.json")
            raise
    return {"state": folder.state(), "is_new": True, "unit": unit if has_systemd() else None}


def has_systemd() -> bool:
    """Whether systemd is in charge here and lets us start units (the test that sd_booted(3) makes)."""
    return os.geteuid() == 0 and os.path.isdir("/run/systemd/system") and shutil.which("systemd-run") is not None


def _lay_out(folder: JobFolder, args: dict[str, Any], owner: pwd.struct_passwd) -> None:
    folder.remove("result.json", "progress.json", "process.json", "secrets.json")
    source = script(protocol.packed_modules, args["entry"], {"dir": folder.path}, server=SERVER)
    files = {"args.json": json.dumps(args["args"]), "job.py": source, "log": ""}
    if args.get("secrets"):
        files["secrets.json"] = json.dumps(args["secrets"])
    for name, text in files.items():
        write_atomically(folder.file(name), text)
        _give(folder.file(name), owner)
    if os.path.exists(folder.file("alive")):
        _give(folder.file("alive"), owner)


def _give(path: str, owner: pwd.struct_passwd) -> None:
    if os.geteuid() == 0:
        os.chown(path, owner.pw_uid, owner.pw_gid)


def _argv(folder: JobFolder) -> list[str]:
    return [sys.executable or "python3", "-I", folder.file("job.py")]


def _start_unit(unit: str, folder: JobFolder, owner: pwd.struct_passwd) -> None:
    command = [
        "systemd-run",
        "--quiet",
        "--collect",  # a failed unit goes away too, so that its name is free for the next start
        f"--unit={unit}",
        "--service-type=exec",
        f"--property=User={owner.pw_name}",
        "--property=KillMode=mixed",  # SIGTERM to the job alone: it ends its own workers and tidies up
        "--property=TimeoutStopSec=30",
        "--",
        *_argv(folder),
    ]
    deadline = time.monotonic() + _START_WITHIN_S
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_START_WITHIN_S)
        if done.returncode == 0:
            return
        # The unit of the last run may still be on its way out: its lock is free a moment before its name.
        if not _is_loaded(unit) or time.monotonic() > deadline:
            raise Refusal(
                f"systemd did not start {unit}",
                why=done.stderr.strip(),
                fix=f"look at `systemctl status {unit}` on the node, then run the same command again",
                found=f"systemd-run: exit code {done.returncode}",
            )
        time.sleep(0.2)


def _is_loaded(unit: str) -> bool:
    done = subprocess.run(
        ["systemctl", "show", "--property=LoadState", "--value", unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=_START_WITHIN_S,
    )
    return done.stdout.strip() == "loaded"


def _start_session(folder: JobFolder, owner: pwd.struct_passwd) -> None:
    as_user: dict[str, Any] = {}
    if owner.pw_uid != os.geteuid():
        groups = os.getgrouplist(owner.pw_name, owner.pw_gid)
        as_user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": groups}
    with open(folder.file("log"), "ab") as log:
        subprocess.Popen(
            _argv(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"PATH": os.defpath, "HOME": owner.pw_dir, "LC_ALL": "C"},
            start_new_session=True,
            **as_user,
        )


def _wait_until_alive(folder: JobFolder, unit: str) -> None:
    deadline = time.monotonic() + _START_WITHIN_S
    while time.monotonic() < deadline:
        # A quick job may have come and gone: its result says so.
        if os.path.exists(folder.file("process.json")) or os.path.exists(folder.file("result.json")):
            return
        time.sleep(_POLL_S)
    raise Refusal(
        f"{unit} was started but did not come up within {_START_WITHIN_S:.0f} s",
        why=folder.log_tail() or "it printed nothing",
        fix=f"look at `journalctl -u {unit}` on the node, then run the same command again",
        path=folder.file("log"),
    )
