"""nodes.yaml: which machines, and how to reach them. Pure models and checks; reading the file is the adapters' work.

The order of the file gives the ranks: the first node of a replica is its head. Ranks are never written by hand.
"""

import ipaddress
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import Field

from k3deploy.domain.faults import Fault, Path, raise_if_any, shown
from k3deploy.domain.profile import shape
from k3deploy.domain.profile.models import Port, Section
from k3deploy.domain.yaml_text import Document

_RANK_KEYS = ("rank", "node_rank")


class NodeEntry(Section):
    """One machine. Only `name` and `address` are needed; the rest falls back to ~/.ssh/config.

    `address` is what `ssh` would be given: an address, a DNS name or an alias of ~/.ssh/config.
    `private_address` is found by the facts probe (by the profile's subnet) when it is absent.
    `host_key` is one line as in known_hosts without the host: "ssh-ed25519 AAAA...".
    """

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9.-]*$")]
    address: Annotated[str, Field(min_length=1)]
    port: Port | None = None
    user: str | None = None
    key: str | None = None
    jump: str | None = None
    host_key: str | None = None
    private_address: str | None = None
    pool: str | None = None


class NodesFile(Section):
    nodes: Annotated[tuple[NodeEntry, ...], Field(min_length=1)]

    def entry(self, node: str) -> NodeEntry:
        """What the file says of a node that has a place in the topology, which was made from this file."""
        return next(entry for entry in self.nodes if entry.name == node)


def load(document: Document) -> NodesFile:
    """Raises ProfileError or ProfileFaults with every fault of the file itself: shape, ranks, doubles, addresses."""
    ranks = list(_written_ranks(document))
    nodes_file, faults = shape.build(NodesFile, _without_ranks(document.value), document.at, document.name)
    told = {fault.path for fault in document.faults}
    faults = [*document.faults, *ranks, *(fault for fault in faults if fault.path not in told)]
    if nodes_file is not None:
        faults += _doubles(nodes_file, document.at)
        faults += _addresses(nodes_file, document.at)
        faults += _ssh_words(nodes_file, document.at)
    raise_if_any(faults, document.name)
    assert nodes_file is not None  # noqa: S101 - shape.build gives a file or faults
    return nodes_file


def _written_ranks(document: Document) -> Iterator[Fault]:
    entries = document.value.get("nodes")
    seen: dict[str, str] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        for key in _RANK_KEYS if isinstance(entry, dict) else ():
            if key not in entry:
                continue
            rank, name = shown(entry[key]), str(entry.get("name", f"nodes[{index}]"))
            path: Path = ("nodes", index, key)
            also = f"; {seen[rank]} has it too" if rank in seen else ""
            seen.setdefault(rank, name)
            yield Fault(
                f"{name} is given rank {rank} by hand{also}",
                "remove it, and write the nodes in the order of their ranks: the first is the head",
                path=path,
                at=document.at(path),
                why="two nodes with one rank wait for each other until a timeout",
            )


def _without_ranks(value: dict[str, Any]) -> dict[str, Any]:
    """So that written ranks hide no other fault."""
    entries = value.get("nodes")
    if not isinstance(entries, list):
        return value
    kept = [{k: v for k, v in e.items() if k not in _RANK_KEYS} if isinstance(e, dict) else e for e in entries]
    return {**value, "nodes": kept}


def _doubles(nodes_file: NodesFile, at: Callable[[Path], str]) -> Iterator[Fault]:
    for key, value_of in (
        ("name", lambda node: node.name),
        ("address", lambda node: (node.address, node.port)),
        ("private_address", lambda node: node.private_address),
    ):
        first: dict[Any, str] = {}
        for index, node in enumerate(nodes_file.nodes):
            value = value_of(node)
            path: Path = ("nodes", index, key)
            if value is None:
                continue
            if value in first:
                name = first[value]
                yield Fault(
                    f"two nodes have the same {key}: nodes[{index}] and {name}",
                    "give each machine once",
                    path=path,
                    at=at(path),
                    found=shown(getattr(node, key)),
                    wanted=f"another than that of {name}",
                )
            first.setdefault(value, node.name if key != "name" else f"nodes[{index}]")


def _ssh_words(nodes_file: NodesFile, at: Callable[[Path], str]) -> Iterator[Fault]:
    """What is handed to ssh must not be readable as one of its options, or as two words."""
    for index, node in enumerate(nodes_file.nodes):
        for key in ("address", "user", "jump"):
            value = getattr(node, key)
            if value is not None and (value.startswith("-") or not value or any(c.isspace() for c in value)):
                path: Path = ("nodes", index, key)
                yield Fault(
                    f"`{key}` cannot be given to ssh",
                    "write it without spaces, and not beginning with a dash",
                    path=path,
                    at=at(path),
                    found=shown(value),
                )


def _addresses(nodes_file: NodesFile, at: Callable[[Path], str]) -> Iterator[Fault]:
    families: set[int] = set()
    for index, node in enumerate(nodes_file.nodes):
        if node.private_address is None:
            continue
        path: Path = ("nodes", index, "private_address")
        try:
            address = ipaddress.ip_address(node.private_address)
        except ValueError:
            yield Fault(
                "`private_address` is not an address",
                "write the address itself: a name may mean another one on each node",
                path=path,
                at=at(path),
                found=shown(node.private_address),
                wanted="an IPv4 or IPv6 address",
            )
            continue
        if address.is_loopback or address.is_unspecified:
            yield Fault(
                "`private_address` cannot be reached by the other nodes",
                "write the address on the network that the nodes share",
                path=path,
                at=at(path),
                found=shown(node.private_address),
            )
        families.add(address.version)
    if len(families) > 1:
        yield Fault(
            "private addresses mix IPv4 and IPv6",
            "use one kind for all nodes",
            path=("nodes",),
            at=at(("nodes",)),
        )
