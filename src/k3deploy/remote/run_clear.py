"""Remove a run's files from its folder on a node: keys, launch records, the client, stamps, finished jobs.

The journal of what the run changed on the machine stays, so that `teardown --restore` can still undo it later; without
an entry in it the folder goes too.
"""

import contextlib
import os
import shutil
from typing import Any

from k3deploy.remote.job_folder import JobFolder
from k3deploy.remote.journal import FILE_NAME, Journal
from k3deploy.remote.protocol import Refusal, Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: folder. Returns {"removed": [names], "is_gone"}. Raises Refusal while a job of the run is running."""
    folder = args["folder"]
    if not os.path.isdir(folder):
        return {"removed": [], "is_gone": True}
    jobs = os.path.join(folder, "jobs")
    running = [name for name in _names(jobs) if JobFolder(os.path.join(jobs, name)).is_running()]
    if running:
        raise Refusal(
            f"jobs of this run are still running: {', '.join(running)}",
            fix="run the same command again: it ends them first",
            path=jobs,
        )
    removed = []
    # Keys first: if this is cut off, what matters most is gone.
    for name in sorted(_names(folder), key=lambda name: (name != "engine.yaml", name)):
        if name != FILE_NAME:
            _remove(os.path.join(folder, name))
            removed.append(name)
    if not Journal(folder).entries():
        _remove(folder)
        with contextlib.suppress(OSError):  # other runs live there
            os.rmdir(os.path.dirname(folder))
    return {"removed": removed, "is_gone": not os.path.isdir(folder)}


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
