"""Ask a machine which host keys it shows, through its jump hosts, without logging in and without trusting anything."""

from pathlib import Path

from k3deploy.adapters.deadline import Deadline
from k3deploy.adapters.ssh import paramiko_loader
from k3deploy.adapters.ssh.config import SshConfig
from k3deploy.adapters.ssh.host_key import HostKey
from k3deploy.adapters.ssh.links import Jumps
from k3deploy.domain.nodes_file import NodeEntry

TIMEOUT_S = 20.0


def shown_keys(entry: NodeEntry, *, ssh_config: Path | None = None, timeout_s: float = TIMEOUT_S) -> list[HostKey]:
    """Best type first. Raises NodeUnreachable; HostKeyError and AuthError are about a jump host."""
    paramiko_loader.load()
    from k3deploy.adapters.ssh.connect import host_keys

    # A pin that cannot be read is what this is to replace, so it must not stand in the way.
    route = SshConfig(ssh_config).route(entry.model_copy(update={"host_key": None}))
    jumps = Jumps(timeout_s)
    limit = Deadline(timeout_s)
    try:
        return host_keys(route, limit, jumps.connection(route.via, limit) if route.via else None)
    finally:
        jumps.close()
