"""A host key as a value: what `host_key` in nodes.yaml and a line of known_hosts hold."""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass
from typing import Final

# Key type -> the signature algorithms that are offered for it, best first (OpenSSH 8.8+ refuses ssh-rsa's SHA-1).
ALGORITHMS: Final[dict[str, tuple[str, ...]]] = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}


@dataclass(frozen=True)
class HostKey:
    """`kind` is the key type ("ssh-ed25519"), `blob` the public key in SSH wire form."""

    kind: str
    blob: bytes

    @staticmethod
    def parse(text: str) -> "HostKey":
        """Read "ssh-ed25519 AAAA... [comment]". Raises ValueError for anything else."""
        words = text.split()
        if len(words) < 2:
            raise ValueError('a host key is a type and a key: "ssh-ed25519 AAAA..."')
        kind, encoded = words[0], words[1]
        if kind not in ALGORITHMS:
            raise ValueError(f"{kind} is not one of {', '.join(ALGORITHMS)}")
        try:
            blob = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise ValueError("the key is not base64") from None
        if not blob.startswith(struct.pack(">I", len(kind)) + kind.encode()):
            raise ValueError(f"the key itself is not of type {kind}")
        return HostKey(kind, blob)

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` and cloud consoles show it: SHA256:..., without padding."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    @property
    def line(self) -> str:
        """The form that nodes.yaml and known_hosts hold."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"

    def __str__(self) -> str:
        return f"{self.fingerprint} ({self.kind})"


def algorithms_for(kinds: set[str]) -> tuple[str, ...]:
    """The algorithms to offer so that no other type of key than these can be negotiated."""
    return tuple(name for kind, names in ALGORITHMS.items() if kind in kinds for name in names)
