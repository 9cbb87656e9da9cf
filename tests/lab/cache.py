"""Things that are slow to make, made once: each is named after a hash of its recipe.

An entry is built in a temporary folder under a lock and renamed into place, so that a reader sees all of it or nothing,
whoever is killed meanwhile and however many labs start at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from tests.lab import folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HASH_LENGTH = 12
UNUSED_S = 24 * 3600


def recipe_hash(*ingredients: str | bytes) -> str:
    """Name a recipe; each ingredient's length is hashed too, so that moving a byte between two changes the name."""
    digest = hashlib.sha256()
    for each in ingredients:
        data = each.encode() if isinstance(each, str) else each
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:HASH_LENGTH]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the kernel drops it with the process. The holder may remove the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_still(path, handle):
                yield
                return


def _is_still(path: Path, handle: IO[str]) -> bool:
    """False when the file we waited for was removed by its holder: another may hold a lock on its successor."""
    try:
        return path.stat().st_ino == os.fstat(handle.fileno()).st_ino
    except FileNotFoundError:
        return False


def entry(kind: str, recipe: str, build: Callable[[Path], None]) -> Path:
    """The folder of a cached thing, built by `build(folder)` when it isn't there yet."""
    cache = folders.cache()
    done = cache / f"{kind}-{recipe}"
    if done.is_dir():
        os.utime(done)  # last use, for `prune`
        return done
    with locked(cache / f"{kind}-{recipe}.lock"):
        if done.is_dir():
            return done
        draft = cache / f".{kind}-{recipe}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        began = time.monotonic()
        print(f"lab: building {kind} (kept in {done})", file=sys.stderr, flush=True)
        build(draft)
        draft.rename(done)
        print(f"lab: built {kind} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return done


def prune(kind: str) -> None:
    """Remove what older recipes of a kind made and nobody has used for a day.

    For kinds that a lab copies when it comes up; one that it goes on using in place must stay.
    """
    for path in folders.cache().glob(f"{kind}-*"):
        if path.is_dir() and time.time() - path.stat().st_mtime > UNUSED_S:
            shutil.rmtree(path)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
