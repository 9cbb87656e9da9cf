"""Prove one file that has just landed: its bytes are hashed from the page cache, and are on the disk before we say so.

Without the second half a power cut could leave a stamped file with holes: size and times right, bytes gone.
"""

import hashlib
import os
from collections.abc import Callable

from k3deploy.remote.hub_cache import Found, Wanted
from k3deploy.remote.stamps import identity

BLOCK_BYTES = 1 << 20


def digester(file: Wanted) -> "hashlib._Hash":
    """sha256 for large files, the git blob id for small ones."""
    return hashlib.sha256() if file.is_sha256 else hashlib.sha1(b"blob %d\0" % file.size_bytes, usedforsecurity=False)


def prove(path: str, file: Wanted, go_on: Callable[[], None]) -> "tuple[str, list[int]]":
    """The digest of the bytes at `path`, and the identity of the very file that was read. Raises OSError.

    `go_on` is called for each block; it may raise to end the reading.
    """
    digest = digester(file)
    buffer = memoryview(bytearray(BLOCK_BYTES))
    real = os.path.realpath(path)
    with open(real, "rb", buffering=0) as source:
        before = identity(Found(real, os.fstat(source.fileno())))
        while count := source.readinto(buffer):
            digest.update(buffer[:count])
            go_on()
        os.fsync(source.fileno())
    return digest.hexdigest(), before
