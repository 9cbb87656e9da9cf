"""Whether an unpacked client is whole: a stamp that lists every file with its size, and the lock it came from."""

import hashlib
import json
import os
from typing import Any

STAMP = "k3deploy-client.json"
_COMPILED = "__pycache__"  # written by Python itself when the client first runs


def write_stamp(folder: str, lock: str) -> int:
    """Make the stamp of a folder that was just unpacked. Returns the number of its files."""
    files = _listing(folder)
    with open(os.path.join(folder, STAMP), "w", encoding="utf-8") as file:
        json.dump({"lock": lock, "files": len(files), "listing": _digest(files)}, file)
    return len(files)


def read_stamp(folder: str, lock: str) -> dict[str, Any]:
    """{"is_whole", "why"}: whether every file is there with its size, and comes from this lock."""
    try:
        with open(os.path.join(folder, STAMP), encoding="utf-8") as file:
            stamp = json.load(file)
        made_of, made, count = stamp["lock"], stamp["listing"], stamp["files"]
        files = _listing(folder)
    except FileNotFoundError:
        return {"is_whole": False, "why": "it is not there"}
    except (ValueError, KeyError, TypeError):
        return {"is_whole": False, "why": "its stamp is damaged"}
    if made_of != lock:
        return {"is_whole": False, "why": f"it is of lock {made_of}"}
    if made != _digest(files):
        return {"is_whole": False, "why": f"it has {len(files)} files, not the {count} that were unpacked"}
    return {"is_whole": True, "why": ""}


def _listing(folder: str) -> list[tuple[str, int]]:
    """Relative path and size of every file, the stamp and what Python compiles left out."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != _COMPILED]
        for name in names:
            path = os.path.join(place, name)
            relative = os.path.relpath(path, folder)
            if relative != STAMP:
                found.append((relative, os.lstat(path).st_size))
    return sorted(found)


def _digest(files: list[tuple[str, int]]) -> str:
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()
