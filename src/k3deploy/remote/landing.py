"""Prove one file that has just landed: its bytes are hashed from the page cache, and are on the disk before we say so.

Without the second half a power cut could leave a stamped file with holes: size and times right, bytes gone.
"""

import os
import threading
from collections.abc import Callable

from k3deploy.remote.hub_cache import Found, Wanted
from k3deploy.remote.stamps import identity

BLOCK_BYTES = 1 << 20


class Flusher:
    """Brings a file's bytes to the disk while others are still being read or written, so that the end is no wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def begin(self) -> None:
        """With what was written until now, unless the last time is not over yet."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._flush, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Everything is on the disk. Raises OSError when the disk has not taken it."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:  # the kernel tells it only once
            raise self._error
        os.fsync(self._descriptor)

    def _flush(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._error = error


def prove(path: str, file: Wanted, go_on: Callable[[], None]) -> "tuple[str, list[int]]":
    """The digest of the bytes at `path`, and the identity of the very file that was read. Raises OSError.

    `go_on` is called for each block; it may raise to end the reading.
    """
    digest = file.hasher()
    buffer = memoryview(bytearray(BLOCK_BYTES))
    real = os.path.realpath(path)
    with open(real, "rb", buffering=0) as source:
        before = identity(Found(real, os.fstat(source.fileno())))
        flusher = Flusher(source.fileno())
        flusher.begin()
        while count := source.readinto(buffer):
            digest.update(buffer[:count])
            go_on()
        flusher.finish()
    return digest.hexdigest(), before
