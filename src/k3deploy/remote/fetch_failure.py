"""What can go wrong with one file on its way here: a class that decides what is next, and words for people."""

import errno
import re
from typing import Any

DISK_FULL = "disk-full"
DISK_DENIED = "disk-denied"
NO_ACCESS = "no-access"
ABSENT = "absent"
WRONG = "wrong-bytes"
STOPPED = "stopped"
BUSY = "busy"
RETRY = "retry"

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)
_MESSAGE_CHARACTERS = 400
# Clients quote the address that failed, and one that the Hub has redirected to opens the file to whoever reads it.
_QUERY = re.compile(r"(https?://[^\s?'\"<>]+)\?[^\s'\"<>]+")


def failure(kind: str, text: str, wait_s: float = 0.0) -> dict[str, Any]:
    """In the shape in which workers say it, addresses without their signatures.

    `wait_s`: how long the other side asked to be left alone.
    """
    return {"kind": kind, "text": _QUERY.sub(r"\1?...", text)[:_MESSAGE_CHARACTERS], "wait_s": wait_s}


def wrong_bytes(digest: str, wanted: str) -> dict[str, Any]:
    """It arrived whole, and is not what was asked for."""
    return failure(WRONG, f"its digest is {digest}, wanted {wanted}")


def kind_of(error: BaseException) -> str:
    """A full or forbidden disk concerns every file and is told from the rest, which may pass."""
    number = getattr(error, "errno", None)
    if number in DISK_FULL_ERRNOS:
        return DISK_FULL
    return DISK_DENIED if number in _DENIED_ERRNOS else RETRY
