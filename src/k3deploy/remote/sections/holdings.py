"""What a run still has on this node: jobs, files of its folder, changes it noted, the model's weights. Reads only."""

import os
from typing import Any

from k3deploy.remote.docker_config import DAEMON_JSON, backup_path, kept_config
from k3deploy.remote.job_folder import JobFolder
from k3deploy.remote.journal import Journal


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: folder (of the run), run, caches (folders of the model and its draft below <HF_HOME>/hub), optionally
    daemon_json.

    `has_backup`: the daemon.json from before the run is kept, though the disk with the journal may have been wiped.
    """
    folder = args["folder"]
    backup = backup_path(args.get("daemon_json") or DAEMON_JSON, args["run"])
    jobs_folder = os.path.join(folder, "jobs")
    return {
        "exists": os.path.isdir(folder),
        "jobs": [
            {"name": name, "dir": os.path.join(jobs_folder, name), "state": JobFolder(f"{jobs_folder}/{name}").state()}
            for name in _names(jobs_folder)
        ],
        "files": _names(folder),
        "journal": Journal(folder).entries(),
        "has_backup": kept_config(backup)[0],
        "weights": {"path": args["caches"][0], "bytes": _together(args["caches"])},
    }


def _together(folders: list[str]) -> "int | None":
    """Bytes of those that exist; None when none does."""
    found = [size for folder in folders if (size := disk_bytes(folder)) is not None]
    return sum(found) if found else None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def disk_bytes(folder: str) -> "int | None":
    """What removing the folder would free; None when it does not exist. Links are not followed."""
    if not os.path.isdir(folder):
        return None
    seen: set[tuple[int, int]] = set()
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))
            except FileNotFoundError:  # a download that is under way renames its files
                continue
            key = (status.st_dev, status.st_ino)
            if key not in seen:
                seen.add(key)
                total += status.st_blocks * 512
    return total
