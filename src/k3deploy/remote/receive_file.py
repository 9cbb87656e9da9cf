"""A file that comes piece by piece and is hashed as it comes. Half of one is gone on with, after a power cut too."""

import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Any

from k3deploy.remote.fetch_failure import wrong_bytes
from k3deploy.remote.hub_cache import Found, Repository, Wanted
from k3deploy.remote.landing import BLOCK_BYTES, Flusher
from k3deploy.remote.partial_name import resumable
from k3deploy.remote.stamps import identity
from k3deploy.remote.tidy import link_blob

# Left to itself the kernel keeps seconds of writing in memory, and the end of a large file waits for all of it.
_FLUSH_BYTES = 256 << 20


class ReceiveFile:
    """Open it in a `with` block. What lies here already is hashed first; `go_on` is called for each block of that.

    Raises OSError, BlockingIOError among them where another process is writing to it.
    """

    def __init__(self, repository: Repository, file: Wanted, *, is_fresh: bool, go_on: Callable[[], None]) -> None:
        self._repository = repository
        self._file = file
        self._path = repository.blob(resumable(file.digest))
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._flusher = Flusher(self._descriptor)
        self._flushed_to = 0
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._begin()
            if is_fresh or os.fstat(self._descriptor).st_size > file.size_bytes:
                self.restart()
            else:
                self._read_what_is_here(go_on)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> "ReceiveFile":
        return self

    def __exit__(self, *_: object) -> None:
        if self.offset == 0 and self._file.size_bytes > 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)  # nothing came of it
        os.close(self._descriptor)

    @property
    def is_whole(self) -> bool:
        return self.offset == self._file.size_bytes

    def restart(self) -> None:
        """Begin at the first byte."""
        os.ftruncate(self._descriptor, 0)
        self._begin()

    def append(self, piece: bytes) -> None:
        self._digest.update(piece)
        rest = memoryview(piece)
        while rest:
            written = os.pwrite(self._descriptor, rest, self.offset)
            self.offset += written
            rest = rest[written:]
        if self.offset - self._flushed_to >= _FLUSH_BYTES:
            self._flusher.begin()
            self._flushed_to = self.offset

    def finish(self) -> dict[str, Any]:
        """Let it become a blob with a link when its digest is right, and nothing when it is not.

        Its bytes are on the disk before it has its name. Returns the fields of a worker's last word.
        """
        digest = self._digest.hexdigest()
        if digest != self._file.digest:
            os.unlink(self._path)
            return {"failure": wrong_bytes(digest, self._file.digest)}
        self._flusher.finish()
        os.rename(self._path, self._repository.blob(self._file.digest))
        with contextlib.suppress(FileExistsError):
            link_blob(self._repository, self._file)
        found = Found(self._path, os.fstat(self._descriptor))
        return {"failure": None, "digest": digest, "identity": identity(found)}

    def _begin(self) -> None:
        self.offset = self._flushed_to = 0
        self._digest = self._file.hasher()

    def _read_what_is_here(self, go_on: Callable[[], None]) -> None:
        buffer = memoryview(bytearray(BLOCK_BYTES))
        while count := os.preadv(self._descriptor, [buffer], self.offset):
            self._digest.update(buffer[:count])
            self.offset += count
            go_on()
