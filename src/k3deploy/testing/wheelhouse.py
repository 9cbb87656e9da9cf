"""A wheelhouse with the wheels that a test gives it, for both architectures alike."""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from k3deploy.contracts import ClientPack
from k3deploy.domain.client_lock import ClientLock, Pinned
from k3deploy.domain.errors import K3Error
from k3deploy.domain.names import Sha256
from k3deploy.testing.unscripted import Unscripted


class FakeWheelhouse:
    """`wheels`: file name -> content. `error` set makes every pack fail with it; `asked` keeps the architectures."""

    def __init__(self, wheels: Mapping[str, bytes] | None = None, folder: Path | None = None) -> None:
        self._wheels = dict(wheels or {})
        self._sums = {name: Sha256(hashlib.sha256(data).hexdigest()) for name, data in self._wheels.items()}
        self._folder = folder
        self.lock = ClientLock("0123456789ab", tuple(_pinned(name, sha256) for name, sha256 in self._sums.items()))
        self.error: K3Error | None = None
        self.asked: list[str] = []

    def pack(self, architecture: str) -> ClientPack:
        self.asked.append(architecture)
        if self.error is not None:
            raise self.error
        if self._folder is None:
            raise Unscripted("this wheelhouse was given no folder to pack in")
        path = self._folder / f"pack-{architecture}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in self._wheels.items():
                archive.writestr(name, data)
        return ClientPack(path, self._sums)


def _pinned(wheel: str, sha256: Sha256) -> Pinned:
    name, version, *_ = wheel.split("-")
    return Pinned(name.replace("_", "-"), version, frozenset({sha256}))
