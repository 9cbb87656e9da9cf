"""A store in a folder: one plain file for each key, readable with any editor, safe against crashes and other writers.

A file appears under its name only when it is complete and on the disk. Creation is one hard link, which the kernel
lets only one writer make; replacement and deletion happen under a lock on the whole folder.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from k3deploy.contracts import Stored
from k3deploy.domain.errors import StoreConflict, StoreError
from k3deploy.domain.store_keys import check_key

LOCK_TIMEOUT_S = 20.0
_LOCK_POLL_S = 0.005
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_COARSE_STEP_NS = 2_000_000_000  # the coarsest time stamps of a file system that still has them


class DirectoryStore:
    """Implements `contracts.Store`. The folder (0700) and its files (0600) are made at the first write.

    A tag is the content's digest with the file's time of change. That time is set by us, always later than the
    one before and with random low digits: so a value that was changed and changed back has another tag.
    """

    def __init__(
        self, root: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S, link: Callable[[Path, Path], None] = os.link
    ) -> None:
        """`link` makes a hard link or raises OSError, as `os.link` does."""
        self._root = root
        self._lock_timeout_s = lock_timeout_s
        self._link = link

    def get(self, key: str) -> Stored | None:
        path = self._path(key)
        with self._explained("read", key):
            try:
                with path.open("rb") as file:
                    changed_ns = os.fstat(file.fileno()).st_mtime_ns
                    data = file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return Stored(data, _tag(data, changed_ns))

    def put(self, key: str, data: bytes) -> str:
        path = self._path(key)
        with self._explained("write", key), self._locked():
            return self._replace(path, data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        path = self._path(key)
        with self._explained("write", key), _temporary(path, data, after_ns=0) as draft:
            try:
                self._link(draft, path)
            except FileExistsError:
                raise self._conflict(key, "it exists already") from None
            except OSError as err:
                if err.errno not in _NO_LINKS:
                    raise
                self._create_without_links(key, draft, path)
            _sync_folder(path.parent)
            return _tag(data, path.stat().st_mtime_ns)

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        path = self._path(key)
        with self._explained("write", key), self._locked():
            current = self.get(key)
            if current is None:
                raise self._conflict(key, "it is gone")
            if current.tag != tag:
                raise self._conflict(key, "it has changed since it was read")
            return self._replace(path, data)

    def list(self, prefix: str) -> Sequence[str]:
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self._root
        with self._explained("list", prefix):
            return sorted(key for key in self._keys_below(start) if key.startswith(prefix))

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._explained("delete", key):
            if not path.exists():
                return
            with self._locked():
                path.unlink(missing_ok=True)
                _sync_folder(path.parent)

    def describe(self) -> str:
        return str(self._root)

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._root / key

    def _keys_below(self, start: Path) -> Iterator[str]:
        for folder, _, names in os.walk(start):
            for name in names:
                if not name.startswith("."):  # the lock, and drafts of writers at work
                    yield (Path(folder) / name).relative_to(self._root).as_posix()

    def _replace(self, path: Path, data: bytes) -> str:
        """Under the lock."""
        before = path.stat().st_mtime_ns if path.exists() else 0
        with _temporary(path, data, after_ns=before) as draft:
            changed_ns = draft.stat().st_mtime_ns
            draft.replace(path)
        _sync_folder(path.parent)
        return _tag(data, changed_ns)

    def _create_without_links(self, key: str, draft: Path, path: Path) -> None:
        """On file systems that know no hard links (FAT, some network mounts)."""
        with self._locked():
            if path.exists():
                raise self._conflict(key, "it exists already")
            draft.replace(path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        _make_folder(self._root)
        handle = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            ends = time.monotonic() + self._lock_timeout_s
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > ends:
                        raise StoreError(
                            what=f"{self._root} is locked by another process for more than {self._lock_timeout_s:g} s",
                            why="a write takes milliseconds, so that process is stuck",
                            fix=f"find and end it: fuser -v {self._root / '.lock'}",
                        ) from None
                    time.sleep(_LOCK_POLL_S)
            yield
        finally:
            os.close(handle)  # which also ends the lock

    @contextlib.contextmanager
    def _explained(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as err:
            raise StoreError(
                what=f"cannot {doing} {key} in the store",
                why=f"{err.strerror or err}" + (f": {err.filename}" if err.filename else ""),
                fix=f"check the folder and its disk: df -h {self._root}; ls -ld {self._root}",
                context={"store": str(self._root)},
            ) from err

    def _conflict(self, key: str, why: str) -> StoreConflict:
        return StoreConflict(
            what=f"{key} was not written to {self._root}",
            why=why,
            fix="somebody else is writing this run; look who: k3deploy status",
            context={"key": key},
        )


def _tag(data: bytes, changed_ns: int) -> str:
    return f"{hashlib.sha256(data).hexdigest()}-{changed_ns:x}"


@contextlib.contextmanager
def _temporary(path: Path, data: bytes, *, after_ns: int) -> Iterator[Path]:
    """A complete file beside `path`, flushed to the disk, with a time of change later than `after_ns`."""
    _make_folder(path.parent)
    draft = path.with_name(f".tmp-{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            _stamp(file.fileno(), after_ns)
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _stamp(handle: int, after_ns: int) -> None:
    wanted_ns = max(time.time_ns(), after_ns) + 1 + secrets.randbelow(1_000_000)
    os.utime(handle, ns=(wanted_ns, wanted_ns))
    while os.fstat(handle).st_mtime_ns <= after_ns:  # the file system rounds: go on to its next step
        wanted_ns += _COARSE_STEP_NS
        os.utime(handle, ns=(wanted_ns, wanted_ns))


def _make_folder(folder: Path) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk only when its folder is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as err:
        if err.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network mounts cannot
            raise
    finally:
        os.close(handle)
