"""Stand-ins for what is known only when machines are: names, addresses, interfaces. Obviously fake, by design."""

from collections.abc import Mapping

from k3deploy.domain.launch.base import Address
from k3deploy.domain.names import NodeName
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.topology import Topology


def placeholder_nodes(profile: Profile) -> NodesFile:
    """As many nodes as the profile needs: node-1, node-2, ..."""
    names = [f"node-{number}" for number in range(1, profile.node_count + 1)]
    return NodesFile(nodes=tuple(NodeEntry(name=name, address=f"{_word(name)}_ADDRESS") for name in names))


def placeholder_addresses(topology: Topology, nodes_file: NodesFile) -> Mapping[NodeName, Address]:
    """Private addresses from the nodes file where it has them, words to be replaced elsewhere; no RDMA ports."""
    known = {entry.name: entry.private_address for entry in nodes_file.nodes}
    return {
        node: Address(
            node=node,
            private_address=known.get(node) or f"{_word(node)}_PRIVATE_ADDRESS",
            private_interface=f"{_word(node)}_PRIVATE_INTERFACE",
        )
        for node in topology.nodes
    }


def _word(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "_")
