"""A word in a file on a volume, by which several machines find out that they see the same one."""

import contextlib
import os
from typing import Any

from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.protocol import Refusal, Say

_LONGEST_CHARACTERS = 100


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: path, verb (write, read, remove), word (to write). Returns {"word"}: what is there now, None for nothing.

    Raises Refusal where the volume cannot be written.
    """
    path = args["path"]
    try:
        if args["verb"] == "write":
            write_atomically(path, args["word"], mode=0o644)
        elif args["verb"] == "remove":
            _remove(path)
    except OSError as error:
        raise Refusal(
            f"cannot write to {path}",
            why=str(error),
            fix="let the login user write to the shared volume (and root, unless it squashes root), then run the same "
            "command again",
            path=path,
        ) from error
    return {"word": _read(path)}


def _read(path: str) -> "str | None":
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_LONGEST_CHARACTERS)
    except FileNotFoundError:
        return None


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
