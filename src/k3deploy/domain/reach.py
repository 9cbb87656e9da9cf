"""Whether every node of a replica reaches every other one on the private network, from what each of them saw. Pure."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from k3deploy.domain.errors import NodeError
from k3deploy.domain.names import NodeName

RANDOM_PORTS: Final = 3
# The kernel's default range for outgoing connections: NCCL and Gloo listen on such ports.
DEFAULT_PORT_RANGE: Final = (32768, 60999)


class Found(StrEnum):
    ANSWERED = "answered"
    OPEN = "open"  # somebody else's port, but the way there is open
    REFUSED = "refused"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    STRANGER = "stranger"


_WORDS: Final = {
    Found.REFUSED: "refused",
    Found.REJECTED: "rejected",
    Found.TIMEOUT: "timed out",
    Found.UNREACHABLE: "has no route",
    Found.STRANGER: "was answered by another machine or program",
}


@dataclass(frozen=True)
class Dial:
    """One attempt: from one node to another on one port. `detail` is the node's own word for it."""

    source: NodeName
    target: NodeName
    port: int
    found: Found
    detail: str

    @property
    def is_through(self) -> bool:
        return self.found in (Found.ANSWERED, Found.OPEN)

    @property
    def text(self) -> str:
        return f"{self.source} -> {self.target} tcp/{self.port} {_WORDS.get(self.found, 'goes through')}"


def dials(rows: Mapping[NodeName, Mapping[str, Any]]) -> tuple[Dial, ...]:
    """From each node's result of `remote/reach.py`."""
    return tuple(
        Dial(source, NodeName(row["to"]), row["port"], Found(row["found"]), row["detail"])
        for source, body in rows.items()
        for row in body["dials"]
    )


def random_ports(seed: str, port_range: tuple[int, int], taken: Sequence[int]) -> tuple[int, ...]:
    """Three ports of the range, the same for the same seed, none of them one of `taken`."""
    low, high = port_range
    free = [port for port in range(low, high + 1) if port not in taken]
    return tuple(sorted(random.Random(seed).sample(free, RANDOM_PORTS)))  # noqa: S311 - which ports, not a secret


def common_range(ranges: Sequence[tuple[int, int] | None]) -> tuple[int, int]:
    """The range that all nodes use for outgoing connections; the kernel's default where it is not known."""
    known = [each or DEFAULT_PORT_RANGE for each in ranges]
    low, high = max(each[0] for each in known), min(each[1] for each in known)
    return (low, high) if high - low >= RANDOM_PORTS + 16 else DEFAULT_PORT_RANGE


def same_address(addresses: Mapping[NodeName, str]) -> NodeError | None:
    """Two nodes with one private address: one of the entries in the nodes file is a copy, or it is one machine."""
    owner: dict[str, NodeName] = {}
    for node, address in addresses.items():
        if address in owner:
            return NodeError(
                what=f"{owner[address]} and {node} have the same private address {address}",
                why="two entries of the nodes file lead to one machine, or the address is used twice",
                fix="correct the addresses in nodes.yaml",
                context={"node": node, "found": address},
            )
        owner[address] = node
    return None


def blocked(
    replica: str, tried: Sequence[Dial], addresses: Mapping[NodeName, str], rendezvous_port: int
) -> NodeError | None:
    """The error for the pairs that do not get through; None when all do."""
    bad = [dial for dial in tried if not dial.is_through]
    if not bad:
        return None
    shown = "; ".join(dial.text for dial in bad)
    pairs = {(dial.source, dial.target) for dial in bad}
    return NodeError(
        what=f"{replica}: the private network is blocked for {len(pairs)} of {len(_pairs(tried))} pairs of nodes",
        why=_reason(bad, tried, rendezvous_port),
        fix=_fix(bad, addresses),
        context={
            "node": ", ".join(dict.fromkeys(str(dial.source) for dial in bad)),
            "found": shown,
            "wanted": "every port from every node to every other one",
        },
    )


def _pairs(tried: Sequence[Dial]) -> set[tuple[NodeName, NodeName]]:
    return {(dial.source, dial.target) for dial in tried}


def _reason(bad: Sequence[Dial], tried: Sequence[Dial], rendezvous_port: int) -> str:
    if all(dial.found is Found.REFUSED for dial in bad):
        return "the way is open, but nothing listened there: our listener on that node did not come up in time"
    if any(dial.found is Found.STRANGER for dial in bad):
        return "an address belongs to another machine, or is translated on the way"
    if all(dial.is_through for dial in tried if dial.port == rendezvous_port):
        return (
            f"port {rendezvous_port} is open for all pairs, others are not: a firewall lets only some ports through, "
            "and the engine's collectives listen on random ones"
        )
    if all(dial.found is Found.REJECTED for dial in bad):
        return "that node listens there, and a firewall turns the connection away"
    return "a firewall or a missing route: these connections got no answer at all"


def _fix(bad: Sequence[Dial], addresses: Mapping[NodeName, str]) -> str:
    if all(dial.found is Found.REFUSED for dial in bad):
        return "run the same command again; if it stays, look at the load of that node"
    return (
        f"allow TCP 1024-65535 between {', '.join(addresses.values())} only (the provider's firewall, "
        "and ufw or nftables on the nodes), then run the same command again"
    )
