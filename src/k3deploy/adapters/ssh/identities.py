"""Which keys are offered to a server, in which order, and which could not be offered and why.

Named files come first, so that an agent full of other keys cannot use up the server's patience (MaxAuthTries)
before the right key was tried. A file's key is signed by the agent when the agent has it: so an encrypted
file works without a passphrase being asked for.
"""

import base64
import binascii
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH
from paramiko.pkey import UnknownKeyType

from k3deploy.adapters.ssh.route import Identities

AGENT_TIMEOUT_S = 20.0  # an agent may ask its owner to confirm
_MAGIC = b"openssh-key-v1\0"


@dataclass(frozen=True)
class Offer:
    key: paramiko.PKey
    label: str


@dataclass
class Offers:
    """Iterate to get the keys. `passed_over` and `encrypted` fill on the way."""

    identities: Identities
    passed_over: list[str] = field(default_factory=list)
    encrypted: list[Path] = field(default_factory=list)

    def __iter__(self) -> Iterator[Offer]:
        agent = _Agent(self.identities.agent_socket)
        try:
            yield from self._all(agent)
        finally:
            agent.close()

    def _all(self, agent: "_Agent") -> Iterator[Offer]:
        seen: set[bytes] = set()
        if agent.problem:
            self.passed_over.append(agent.problem)
        for path in self.identities.files:
            offer = self._from_file(path, agent)
            if offer is not None and offer.key.asbytes() not in seen:
                seen.add(offer.key.asbytes())
                yield offer
        if self.identities.only_files:
            return
        for blob, key in agent.by_blob.items():
            if blob not in seen:
                yield Offer(key, f"agent {key.fingerprint}")

    def _from_file(self, path: Path, agent: "_Agent") -> Offer | None:
        blob = public_blob(path)
        if blob is not None and blob in agent.by_blob:
            key = agent.by_blob[blob]
            return Offer(key, f"{path} (by the agent) {key.fingerprint}")
        try:
            key = paramiko.PKey.from_path(path)
        except FileNotFoundError:
            if self.identities.is_explicit:
                self.passed_over.append(f"{path} does not exist")
            return None
        except OSError as err:
            self.passed_over.append(f"{path} cannot be read: {err.strerror}")
            return None
        except TypeError:  # how `cryptography` says that a key is encrypted
            self.encrypted.append(path)
            self.passed_over.append(f"{path} is encrypted and the agent does not have it")
            return None
        except (ValueError, UnknownKeyType, paramiko.SSHException):
            self.passed_over.append(f"{path} is not a private key that can be used here")
            return None
        return Offer(key, f"{path} {key.fingerprint}")


class _Agent(AgentSSH):
    """The agent at a socket's path. One that does not answer is a note, not an error: files may do."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self.problem = ""
        if path is None:
            return
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            conn.settimeout(AGENT_TIMEOUT_S)
            conn.connect(path)
            self._connect(conn)  # type: ignore[attr-defined]  # the stubs leave it out
        except (OSError, paramiko.SSHException) as err:
            conn.close()
            self.problem = f"the agent at {path} does not answer: {err}"

    @property
    def by_blob(self) -> dict[bytes, paramiko.PKey]:
        return {bytes(key.blob): key for key in self.get_keys()}

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]  # the stubs leave it out


def public_blob(path: Path) -> bytes | None:
    """The public half of a key file without its passphrase: from the OpenSSH format's own header, or from FILE.pub."""
    return (
        _from_header(_text(path))
        or _from_public(_text(path))
        or _from_public(_text(path.with_name(path.name + ".pub")))
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _from_public(text: str) -> bytes | None:
    words = text.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        return None
    try:
        return base64.b64decode(words[1], validate=True)
    except binascii.Error:
        return None


def _from_header(text: str) -> bytes | None:
    """`openssh-key-v1`: magic, cipher, key derivation and its options, number of keys, the public key in the clear."""
    body = text.partition("-----BEGIN OPENSSH PRIVATE KEY-----")[2].partition("-----END")[0]
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
        if not data.startswith(_MAGIC):
            return None
        at = len(_MAGIC)
        for _ in range(3):
            at += 4 + struct.unpack_from(">I", data, at)[0]
        count, length = struct.unpack_from(">II", data, at)
        return data[at + 8 : at + 8 + length] if count == 1 else None
    except (binascii.Error, struct.error):
        return None
