"""How one machine is reached: address, user, keys, and through which other machine. Values only, no I/O."""

from dataclasses import dataclass
from pathlib import Path

from k3deploy.adapters.ssh.host_key import HostKey


@dataclass(frozen=True)
class Identities:
    """Which keys may be offered, in this order: `files`, then the agent's others, unless `only_files`.

    `is_explicit`: somebody named these files, so one that is missing is worth an error; else they are the
    default names of OpenSSH, of which most do not exist.
    """

    files: tuple[Path, ...] = ()
    only_files: bool = False
    is_explicit: bool = False
    agent_socket: str | None = None


@dataclass(frozen=True)
class Route:
    """Equal routes are the same machine reached in the same way, so a jump host's connection can be shared.

    `label` names the machine in messages; `node` is its name in nodes.yaml, None for a jump host.
    `pin` is nodes.yaml's host key: with it, known_hosts files are not asked.
    """

    label: str
    node: str | None
    host: str
    port: int
    user: str
    identities: Identities
    host_key_name: str
    known_hosts: tuple[Path, ...]
    pin: HostKey | None = None
    via: "Route | None" = None
    proxy_command: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """`user@host:port`, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"
