"""The wheels of the Hub client for nodes: fetched once by hash with pip, kept in the user's cache, packed for sending.

A node may have no pip, no venv and no route to an index, so the operator's machine does it for all of them, with the
operator's own pip configuration.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import k3deploy
from k3deploy.adapters import pip
from k3deploy.contracts import ClientPack
from k3deploy.domain.client_lock import ARCHITECTURES, ClientLock
from k3deploy.domain.errors import PackageIndexError, ProfileError
from k3deploy.domain.names import Sha256

_LOCK = Path(k3deploy.__file__).parent / "data" / "node-client.txt"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip file can name


class Wheelhouse:
    """Implements `contracts.Wheelhouse`. `folder`: the operator's own wheels, else pip is asked."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        lock_text: str | None = None,
        cache: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._text = lock_text if lock_text is not None else _LOCK.read_text("utf-8")
        self._cache = (cache or user_cache()) / "node-client"
        self._environment = environment
        self._guard = threading.Lock()
        self._lock = ClientLock.parse(self._text)
        self._packs: dict[str, ClientPack] = {}

    @property
    def lock(self) -> ClientLock:
        return self._lock

    def pack(self, architecture: str) -> ClientPack:
        """See the contract. The pack of a lock and an architecture is made once, whoever asks first."""
        path = self._cache / f"{self._lock.id}-{architecture}.zip"
        with self._guard:
            if architecture not in self._packs:
                wheels = None if self._folder is None else self._checked(self._folder, architecture)
                with _exclusive(self._cache / "lock"):
                    sums = self._sums_of(path, architecture)
                    if sums is None:
                        _pack(wheels if wheels is not None else self._fetched(architecture), path)
                        sums = _packed_sums(path)
                self._packs[architecture] = ClientPack(path, sums)
            return self._packs[architecture]

    def copy_to(self, folder: Path) -> Mapping[str, int]:
        """Put the wheels for every architecture into a folder, for `--wheelhouse`. Returns sizes in bytes by name.

        Raises PackageIndexError, and ProfileError where the folder cannot be written.
        """
        with self._guard, _exclusive(self._cache / "lock"):
            found = {wheel.name: wheel for each in ARCHITECTURES for wheel in self._fetched(each)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, wheel in found.items():
                shutil.copyfile(wheel, folder / f".{name}.part")
                (folder / f".{name}.part").replace(folder / name)
        except OSError as err:
            raise ProfileError(
                what=f"cannot write the wheels to {folder}",
                why=err.strerror or str(err),
                fix="name a folder that you may write to",
            ) from err
        return {name: wheel.stat().st_size for name, wheel in sorted(found.items())}

    def _checked(self, folder: Path, architecture: str) -> list[Path]:
        """The operator's wheels: all that the lock names for this architecture, and nothing that it does not know."""
        if not folder.is_dir():
            raise ProfileError(
                what=f"there is no folder {folder}",
                why="--wheelhouse names the folder that holds the node client's wheels",
                fix=f"make it where there is a package index: k3deploy wheelhouse {folder}",
            )
        sums = _sums(folder)
        missing, strangers = self._lock.missing(sums, architecture), self._lock.strangers(sums)
        if missing or strangers:
            raise ProfileError(
                what=f"the wheels in {folder} are not those of the lock",
                why="a node runs only wheels whose hash is known",
                fix=f"make the folder anew where there is a package index: k3deploy wheelhouse {folder}",
                context={
                    "missing": ", ".join(missing),
                    "not in the lock": ", ".join(strangers),
                    "architecture": architecture,
                },
            )
        return [folder / name for name in self._lock.fitting(sums, architecture)]

    def _fetched(self, architecture: str) -> list[Path]:
        """The wheels from the cache, or from the index. The cache's lock is held."""
        folder = self._cache / f"{self._lock.id}-{architecture}"
        if folder.is_dir() and self._lock.missing(_sums(folder), architecture):
            shutil.rmtree(folder)  # damaged since it was fetched
        if not folder.is_dir():
            self._fetch(folder, architecture)
        return sorted(folder.glob("*.whl"))

    def _sums_of(self, path: Path, architecture: str) -> dict[str, Sha256] | None:
        """The hashes inside a pack that was made before, or None where it is absent or not whole."""
        try:
            sums = _packed_sums(path)
        except (FileNotFoundError, zipfile.BadZipFile):
            return None
        whole = not self._lock.missing(sums, architecture) and not self._lock.strangers(sums)
        return sums if whole else None

    def _fetch(self, folder: Path, architecture: str) -> None:
        with tempfile.TemporaryDirectory(dir=self._cache, prefix=".fetch-") as scratch:
            lock, wheels = Path(scratch) / "lock.txt", Path(scratch) / "wheels"
            lock.write_text(self._text, "utf-8")
            wheels.mkdir()
            pip.download(lock, wheels, architecture, self._environment)
            sums = _sums(wheels)
            missing, strangers = self._lock.missing(sums, architecture), self._lock.strangers(sums)
            if missing or strangers:
                raise PackageIndexError(
                    what="the package index gave other wheels than the lock names",
                    why=f"missing: {', '.join(missing) or 'none'}; not in the lock: {', '.join(strangers) or 'none'}",
                    fix="use an index that has the original files, or `--wheelhouse DIR`",
                    context={"architecture": architecture},
                )
            wheels.rename(folder)


def user_cache() -> Path:
    """Where this user's caches are: XDG_CACHE_HOME, else the platform's own place."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        base = Path(named)
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "k3deploy"


def _sums(folder: Path) -> dict[str, Sha256]:
    return {path.name: Sha256(hashlib.sha256(path.read_bytes()).hexdigest()) for path in folder.glob("*.whl")}


def _packed_sums(path: Path) -> dict[str, Sha256]:
    with zipfile.ZipFile(path) as archive:
        return {name: Sha256(hashlib.sha256(archive.read(name)).hexdigest()) for name in archive.namelist()}


def _pack(wheels: list[Path], path: Path) -> None:
    """One file for one transfer. Stored, as wheels are compressed already; without times, so always the same bytes."""
    draft = path.with_suffix(f".{os.getpid()}.part")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
        for wheel in wheels:
            archive.writestr(zipfile.ZipInfo(wheel.name, _EPOCH), wheel.read_bytes())
    draft.replace(path)


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """One process at a time; the others wait and then find the work done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
