"""What was proved of each weight file, and of which bytes: a digest counts while `stat` says the bytes are the same.

One JSON file per repository and commit. A file is known by size, modification and change time and inode: writing to
it, replacing it or restoring it from elsewhere makes it unknown again, and it is hashed anew.
"""

import hashlib
import json
import os
import time
from typing import Any

from k3deploy.remote.hub_cache import Found, Repository, Wanted
from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.protocol import Refusal

_SCHEMA = 2
# Stands in place of a digest where the disk would not give the bytes back, before the reason.
_UNREADABLE = "unreadable: "


def unreadable(reason: str) -> str:
    """What is stamped instead of a digest."""
    return _UNREADABLE + reason


def why_unreadable(digest: str) -> str | None:
    """The reason, where what was stamped is no digest."""
    return digest.removeprefix(_UNREADABLE) if digest.startswith(_UNREADABLE) else None


def identity(found: Found) -> list[int]:
    """What tells these bytes from any others, as far as the file system knows.

    Without the device's number: it changes over a reboot and from node to node on a shared volume, and the stamps lie
    on the very disk that they speak of.
    """
    status = found.stat
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def is_unchanged(found: Found) -> bool:
    """Whether the file is still the one that was looked at: nobody wrote to it or replaced it meanwhile."""
    try:
        return identity(Found(found.real, os.stat(found.real))) == identity(found)
    except FileNotFoundError:
        return False


class Stamps:
    """The stamps of one repository at one commit. Changes are kept in memory until `save`."""

    def __init__(self, repository: Repository) -> None:
        self.path = repository.stamps
        self._files: dict[str, dict[str, Any]] = {}
        self._structure: str | None = None
        try:
            with open(self.path, encoding="utf-8") as file:
                body = json.load(file)
            if body["schema"] == _SCHEMA:
                files = {path: _stamp(each) for path, each in body["files"].items()}
                self._files, self._structure = files, body["structure"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return  # absent, not ours to read, or damaged: nothing is known, so everything is hashed

    def save(self) -> None:
        """Raises Refusal (kind "disk") where we may not or cannot write."""
        body = {"schema": _SCHEMA, "files": self._files, "structure": self._structure}
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            write_atomically(self.path, json.dumps(body, separators=(",", ":")), mode=0o644)
        except OSError as error:
            raise Refusal(
                "what was proved of the weights cannot be kept",
                why=str(error),
                fix=f"{_mend(error)}, then run the same command again",
                path=self.path,
                kind="disk",
            ) from error

    def put(self, file: Wanted, found: Found, digest: str) -> None:
        """Keep what was read. A digest that is not the wanted one is kept too: that blob is known bad."""
        before = self._files.get(file.path, {})
        is_bad = digest != file.digest
        self._files[file.path] = {
            "identity": identity(found),
            "digest": digest,
            "at": time.time(),
            "mismatches": before.get("mismatches", 0) + (1 if is_bad else 0),
        }

    def digest_of(self, file: Wanted, found: Found) -> str | None:
        """The digest these very bytes had when they were read, or None when they were not."""
        stamp = self._stamp_of(file, found)
        return None if stamp is None else str(stamp["digest"])

    def time_of(self, file: Wanted, found: Found) -> float | None:
        """When these very bytes were read, in seconds since the epoch, or None when they were not."""
        stamp = self._stamp_of(file, found)
        return None if stamp is None else float(stamp["at"])

    def mismatches(self, file: Wanted) -> int:
        """How many times this file was read and found wrong on this node."""
        count: int = self._files.get(file.path, {}).get("mismatches", 0)
        return count

    def _stamp_of(self, file: Wanted, found: Found) -> dict[str, Any] | None:
        stamp = self._files.get(file.path)
        return stamp if stamp is not None and stamp["identity"] == identity(found) else None

    def is_structure_proved(self, found: dict[str, Found]) -> bool:
        """Whether headers and index were found consistent on these very bytes."""
        return self._structure is not None and self._structure == _fingerprint(found)

    def put_structure(self, found: dict[str, Found]) -> None:
        self._structure = _fingerprint(found)


def _stamp(body: dict[str, Any]) -> dict[str, Any]:
    """One file's, as `put` writes it. Raises KeyError, TypeError or ValueError for anything else."""
    if not isinstance(body["digest"], str):
        raise TypeError
    return {
        "identity": [int(part) for part in body["identity"]],
        "digest": body["digest"],
        "at": float(body["at"]),
        "mismatches": int(body["mismatches"]),
    }


def _mend(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "give the folder of the Hugging Face cache to the login user"
    return "free space there, or mount it so that it can be written to"


def _fingerprint(found: dict[str, Found]) -> str:
    body = sorted((path, identity(file)) for path, file in found.items())
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()
