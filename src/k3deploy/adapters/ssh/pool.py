"""The nodes of a run over SSH: one connection each, opened at first use, shared by all threads."""

import threading
from pathlib import Path

from k3deploy.adapters.ssh.config import SshConfig
from k3deploy.adapters.ssh.links import Jumps, Link
from k3deploy.adapters.ssh.node import SshNode
from k3deploy.domain.errors import ProfileError
from k3deploy.domain.names import NodeName
from k3deploy.domain.nodes_file import NodesFile


class SshNodes:
    """Implements `contracts.Nodes`. `ssh_config` replaces ~/.ssh/config, for tests."""

    def __init__(self, nodes_file: NodesFile, connect_timeout_s: float, *, ssh_config: Path | None = None) -> None:
        self._entries = {NodeName(entry.name): entry for entry in nodes_file.nodes}
        self._config = SshConfig(ssh_config)
        self._jumps = Jumps(connect_timeout_s)
        self._connect_timeout_s = connect_timeout_s
        self._nodes: dict[NodeName, SshNode] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: NodeName) -> SshNode:
        with self._lock:
            node = self._nodes.get(name)
            if node is None:
                node = self._nodes[name] = SshNode(self._link(name))
            return node

    def close(self) -> None:
        """End all connections. Takes milliseconds: nothing is waited for."""
        with self._lock:
            nodes, self._nodes = list(self._nodes.values()), {}
        for node in nodes:
            node.close()
        self._jumps.close()

    def _link(self, name: NodeName) -> Link:
        entry = self._entries.get(name)
        if entry is None:
            raise ProfileError(
                what=f"the nodes file has no node {name}",
                fix="use one of: " + ", ".join(sorted(self._entries)),
            )
        return Link(entry.name, lambda: self._config.route(entry), self._jumps, self._connect_timeout_s)
