"""How fast the cache's disk takes bytes: a short write, in the background while there is nothing else to do."""

import os
import tempfile
import threading
import time

from k3deploy.remote.landing import BLOCK_BYTES

MOST_BYTES = 64 << 20
_MOST_S = 1.0
_STEP_BYTES = 16 << 20


class DiskRate:
    """`bps` is None until it is known. The file has no name, so nothing of it can stay."""

    def __init__(self, folder: str) -> None:
        self.bps: float | None = None
        self._folder = folder
        threading.Thread(target=self._measure, daemon=True).start()

    def _measure(self) -> None:
        block = os.urandom(BLOCK_BYTES)  # a file system that compresses must not be fooled by zeros
        try:
            with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
                began, written = time.monotonic(), 0
                while written < MOST_BYTES and time.monotonic() - began < _MOST_S:
                    written += file.write(block)
                    if written % _STEP_BYTES == 0:
                        os.fdatasync(file.fileno())
                os.fdatasync(file.fileno())
                self.bps = written / (time.monotonic() - began)
        except OSError:
            pass  # it stays unknown, which bounds nothing; the fetch itself will say what is wrong with the disk
