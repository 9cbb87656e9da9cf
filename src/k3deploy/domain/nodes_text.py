"""The text of a nodes.yaml as `init` and `trust` write it."""

from typing import Any

from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.profile.lock import text_of

_HEADER = """\
# The machines of a run. Their order gives the ranks: the first node of a replica is its head.
# `address` is what ssh is given: an address, a name, or an alias of ~/.ssh/config.
# `host_key` is written by `k3deploy trust`; `private_address` is found on the node when it is not written here.
"""


def nodes_text(nodes: NodesFile) -> str:
    """Read again it gives the same nodes."""
    return _HEADER + text_of({"nodes": [_entry(node) for node in nodes.nodes]})


def _entry(node: NodeEntry) -> dict[str, Any]:
    return node.model_dump(mode="json", exclude_none=True)
