"""The lock of the Hub client that nodes get: which wheels, by hash, for either architecture. Pure."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from k3deploy.domain.names import Sha256

ARCHITECTURES: Final = ("x86_64", "aarch64")

_PIN = re.compile(r"^([\w.-]+)==(\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pinned:
    """One package: exactly one version, and the wheels of it that we accept."""

    name: str
    version: str
    hashes: frozenset[Sha256]


@dataclass(frozen=True)
class ClientLock:
    """`id` names this very set of wheels: it changes with every byte of the lock."""

    id: str
    packages: tuple[Pinned, ...]

    @staticmethod
    def parse(text: str) -> "ClientLock":
        """Read pip's requirements format, as `scripts/lock-node-client` writes it. Raises ValueError."""
        packages = []
        for entry in text.replace("\\\n", " ").splitlines():
            if not entry.strip() or entry.startswith("#"):
                continue
            pin, hashes = _PIN.match(entry), _HASH.findall(entry)
            if pin is None or not hashes:
                raise ValueError(f"not a pinned requirement with hashes: {entry!r}")
            packages.append(Pinned(pin[1], pin[2], frozenset(Sha256(each) for each in hashes)))
        if not packages:
            raise ValueError("a lock without packages")
        return ClientLock(hashlib.sha256(text.encode()).hexdigest()[:12], tuple(packages))

    @property
    def client_version(self) -> str:
        """The version of huggingface_hub in it."""
        return next((each.version for each in self.packages if each.name == "huggingface-hub"), "")

    def fitting(self, wheels: Mapping[str, Sha256], architecture: str) -> tuple[str, ...]:
        """File names of the locked wheels for an architecture, sorted."""
        known = {each for package in self.packages for each in package.hashes}
        return tuple(sorted(name for name, sha256 in wheels.items() if sha256 in known and fits(name, architecture)))

    def missing(self, wheels: Mapping[str, Sha256], architecture: str) -> tuple[str, ...]:
        """Packages, as name==version, that have no locked wheel for an architecture."""
        have = {wheels[name] for name in self.fitting(wheels, architecture)}
        return tuple(f"{each.name}=={each.version}" for each in self.packages if have.isdisjoint(each.hashes))

    def strangers(self, wheels: Mapping[str, Sha256]) -> tuple[str, ...]:
        """File names whose content is not in the lock."""
        known = {each for package in self.packages for each in package.hashes}
        return tuple(sorted(name for name, sha256 in wheels.items() if sha256 not in known))


def fits(wheel: str, architecture: str) -> bool:
    """By the platform tag in its name: `any`, or one that ends with the architecture."""
    platforms = wheel.removesuffix(".whl").rpartition("-")[2].split(".")
    return any(each == "any" or each.endswith(f"_{architecture}") for each in platforms)
