"""One at a time may change where Docker keeps its data, and whoever only looks waits until that is over.

A change outlives the connection that asked for it, so the next run may well come by in the middle of a restart.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

# On a file system that a reboot empties, as it ends every change.
LOCK_PATH = "/run/k3deploy-docker.lock"
# A little less than a survey may take: it then says what it sees.
WAIT_S = 45.0
_POLL_S = 0.1


@contextlib.contextmanager
def changing_docker(path: str = LOCK_PATH) -> Iterator[None]:
    """Hold the lock; the file goes away with it."""
    descriptor = _take(path)
    try:
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)


def wait_for_change(path: str = LOCK_PATH, timeout_s: float = WAIT_S) -> None:
    """Return when nobody changes anything, or after the time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_POLL_S)
        else:
            return  # left by somebody who was killed
        finally:
            os.close(descriptor)


def _take(path: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # its last holder removed the file while we waited for it
