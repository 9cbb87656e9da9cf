"""known_hosts files, read as OpenSSH does: patterns, negation, ports, hashed names and revoked keys. Never written.

`@cert-authority` lines are passed over: a node that has only a host certificate needs a pin in nodes.yaml.
"""

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from k3deploy.adapters.ssh.host_key import HostKey


@dataclass(frozen=True)
class Known:
    """Keys on record for one host; `revoked` ones must never be accepted again."""

    keys: tuple[HostKey, ...] = ()
    revoked: tuple[HostKey, ...] = ()
    sources: tuple[str, ...] = ()  # "path:line" of each of `keys`


def name_for(host: str, port: int) -> str:
    """How a host is called in known_hosts: its name, with the port when that is not 22."""
    return host if port == 22 else f"[{host}]:{port}"


def lookup(name: str, files: Iterable[Path]) -> Known:
    """All that the files say about a host (`name_for` or its HostKeyAlias). An unreadable file says nothing."""
    keys: list[HostKey] = []
    revoked: list[HostKey] = []
    sources: list[str] = []
    for path in files:
        for number, line in enumerate(_lines(path), 1):
            entry = _matching(line, name.lower())
            if entry is None:
                continue
            is_revoked, key = entry
            if is_revoked:
                revoked.append(key)
            else:
                keys.append(key)
                sources.append(f"{path}:{number}")
    return Known(tuple(keys), tuple(revoked), tuple(sources))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _matching(line: str, name: str) -> tuple[bool, HostKey] | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else ""
    if marker not in ("", "@revoked") or len(words) < 3 or not _covers(words[0], name):
        return None
    try:
        return marker == "@revoked", HostKey.parse(" ".join(words[1:3]))
    except ValueError:
        return None  # a type that we cannot use (DSA, security keys): as if it were not there


def _covers(patterns: str, name: str) -> bool:
    if patterns.startswith("|1|"):
        return _hashes_to(patterns, name)
    covered = False
    for pattern in patterns.lower().split(","):
        if pattern.startswith("!") and _like(name, pattern[1:]):
            return False
        covered = covered or _like(name, pattern)
    return covered


def _like(name: str, pattern: str) -> bool:
    # OpenSSH knows * and ? only; fnmatch would read the brackets of "[host]:port" as a set of characters.
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _hashes_to(hashed: str, name: str) -> bool:
    try:
        _, _, salt, digest = hashed.split("|")
        wanted = base64.b64decode(digest, validate=True)
        # SHA-1 is the format's own choice; it hides names, it does not protect keys.
        found = hmac.new(base64.b64decode(salt, validate=True), name.encode(), hashlib.sha1).digest()
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(found, wanted)
