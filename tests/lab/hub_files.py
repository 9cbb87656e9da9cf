"""The Hub's repositories on disk: commits, file lists, and digests that are never computed twice for one file."""

import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LARGE_SUFFIXES = (".safetensors", ".model", ".bin")
_LARGE_BYTES = 10 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class RepoFile:
    """One file of a repository, with the names that git and its large-file storage give it."""

    path: Path
    size: int
    blob_id: str
    sha256: str | None

    @property
    def etag(self) -> str:
        """The digest that clients name the cached blob by."""
        return self.sha256 or self.blob_id


class Repositories:
    """Everything below one folder: `<root>/<owner>/<name>/` is a repository."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._digests: dict[str, dict[str, list[str]]] = {}

    def warm(self) -> None:
        """Hash what has not been hashed before, so that the first client doesn't wait."""
        for note in sorted(self._root.glob("*/*/config.json")):
            self.files(f"{note.parent.parent.name}/{note.parent.name}")

    def has(self, repo: str) -> bool:
        """Whether there is such a repository."""
        return (self._root / repo).is_dir()

    def commit(self, repo: str) -> str:
        """The commit of its only branch: noted beside the folder, else made from its name."""
        note = self._root / f"{repo}.lab.json"
        if note.is_file():
            return str(json.loads(note.read_text(encoding="utf-8"))["commit"])
        return hashlib.sha1(repo.encode(), usedforsecurity=False).hexdigest()

    def files(self, repo: str) -> dict[str, RepoFile]:
        """All files, by their path inside of the repository."""
        folder = self._root / repo
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(
                zip(
                    (str(path.relative_to(folder)) for path in paths),
                    pool.map(lambda path: self._describe(repo, path), paths),
                    strict=True,
                )
            )
        self._save(repo)
        return found

    def file(self, repo: str, name: str) -> RepoFile | None:
        """One file, or nothing where the path is absent or leads out of the repository."""
        folder = (self._root / repo).resolve()
        path = folder / name
        if not path.resolve().is_relative_to(folder) or not path.is_file():
            return None
        return self._describe(repo, path)

    def _describe(self, repo: str, path: Path) -> RepoFile:
        stat = path.stat()
        is_large = path.name.endswith(_LARGE_SUFFIXES) or stat.st_size > _LARGE_BYTES
        key = f"{stat.st_size} {stat.st_mtime_ns}"
        known = self._known(repo)
        name = str(path.relative_to(self._root / repo))
        with self._lock:
            noted = known.get(name)
        if noted is None or noted[0] != key:
            noted = [key, _sha256(path) if is_large else _blob_id(path.read_bytes())]
            with self._lock:
                known[name] = noted
        if not is_large:
            return RepoFile(path=path, size=stat.st_size, blob_id=noted[1], sha256=None)
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{noted[1]}\nsize {stat.st_size}\n"
        return RepoFile(path=path, size=stat.st_size, blob_id=_blob_id(pointer.encode()), sha256=noted[1])

    def _known(self, repo: str) -> dict[str, list[str]]:
        with self._lock:
            if repo not in self._digests:
                self._digests[repo] = {}
                with suppress(OSError, ValueError):
                    self._digests[repo] = json.loads(self._sidecar(repo).read_text(encoding="utf-8"))
            return self._digests[repo]

    def _save(self, repo: str) -> None:
        with self._lock, suppress(OSError):
            text = json.dumps(self._digests[repo], indent=0, sort_keys=True)
            sidecar = self._sidecar(repo)
            if sidecar.is_file() and sidecar.read_text(encoding="utf-8") == text:
                return
            draft = sidecar.with_suffix(f".{os.getpid()}.tmp")
            draft.write_text(text, encoding="utf-8")
            draft.replace(sidecar)

    def _sidecar(self, repo: str) -> Path:
        return self._root / f"{repo}.digests.json"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(_READ_BYTES))
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


def _blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
