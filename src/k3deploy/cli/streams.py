"""Standard streams that cannot stop the work: closed, full or without a reader, what was begun on the nodes goes on.

A deployment outlives the terminal, pager or log file that its progress was written to; when nobody reads any more, the
words are lost and nothing else.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO


@contextmanager
def steady_streams() -> Iterator[None]:
    """Within: no standard stream is None, stderr never raises, and neither stream fails on a character it lacks."""
    before = sys.stdin, sys.stdout, sys.stderr
    # In the order of their numbers: each takes the lowest free one, so that no socket becomes "stdout".
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115 - open as long as the process lives
    sys.stdout = _lenient(sys.stdout or Path(os.devnull).open("w"))  # noqa: SIM115
    sys.stderr = Unbroken(_lenient(sys.stderr or Path(os.devnull).open("w")))  # noqa: SIM115
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


class Unbroken:
    """A text stream of which writing never fails: the first failure mutes it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):  # ValueError: it was closed
            mute(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            mute(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def mute(stream: TextIO) -> None:
    """Let the stream's file lead nowhere, so that what it still buffers fails neither now nor when Python ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _lenient(stream: TextIO) -> TextIO:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # a locale without the letters of a node's name must not end a run
    return stream
