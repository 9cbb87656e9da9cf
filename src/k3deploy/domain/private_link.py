"""Which address and interface a node's siblings reach it by: chosen by the profile's subnet, never guessed."""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from k3deploy.domain.errors import NodeError
from k3deploy.domain.facts import Interface, NodeFacts
from k3deploy.domain.names import NodeName

# Links that containers, virtual machines and Kubernetes add to a machine: their addresses lead nowhere else.
# kube-ipvs0 and nodelocaldns are "dummy" links that hold service addresses, often inside 10.0.0.0/8.
# A veth is known by its name: in a machine that is itself a container (LXD, nspawn) eth0 is one.
_VIRTUAL_KINDS = frozenset({"dummy", "vxlan", "geneve", "ifb", "tun", "sit", "ip6tnl", "ipip"})
_VIRTUAL_NAMES = re.compile(
    r"lo|docker\d+|br-[0-9a-f]{12}|virbr\d+(-nic)?|cni\d+|kube-.*|cali.*|flannel.*|lxc.*|podman\d+|veth.*"
)


@dataclass(frozen=True)
class PrivateLink:
    address: str
    interface: str

    @property
    def host(self) -> str:
        """The address as it stands before a port: an IPv6 one in brackets."""
        return f"[{self.address}]" if ":" in self.address else self.address


def private_link(facts: NodeFacts, *, node: NodeName, subnet: str, wanted: str | None) -> PrivateLink:
    """The one address inside `subnet` (of `network.private_subnet`), or the `wanted` one of nodes.yaml.

    Raises NodeError when there is none, or more than one.
    """
    if facts.interfaces is None:
        raise NodeError(
            what=f"{node}: its network interfaces cannot be read",
            why=facts.why("interfaces"),
            fix="install iproute2 on the node (`sudo apt-get install -y iproute2`) and run the same command again",
            context={"node": node},
        )
    if wanted is not None:
        return _wanted(_all_links(facts.interfaces), node, wanted)
    found = list(_own_links(facts.interfaces))
    network = ipaddress.ip_network(subnet, strict=False)
    matching = [link for link in found if ipaddress.ip_address(link.address) in network]
    if len(matching) == 1:
        return matching[0]
    listing = _listing(found)
    if not matching:
        raise NodeError(
            what=f"{node}: no address inside the private subnet {subnet}",
            why="the nodes of a replica reach each other by private addresses, and this node has none there",
            fix="set `network.private_subnet` in the profile to the subnet below that all nodes share, "
            "or `private_address` of this node in nodes.yaml",
            context={"node": node, "found": listing, "wanted": f"one address in {subnet}"},
        )
    raise NodeError(
        what=f"{node}: {len(matching)} addresses inside the private subnet {subnet}",
        why="which of them the other nodes can reach is not for us to guess",
        fix="narrow `network.private_subnet` in the profile, or set `private_address` of this node in nodes.yaml",
        context={"node": node, "found": _listing(matching), "wanted": f"one address in {subnet}"},
    )


def _wanted(found: list[PrivateLink], node: NodeName, wanted: str) -> PrivateLink:
    address = ipaddress.ip_address(wanted)
    for link in found:
        if ipaddress.ip_address(link.address) == address:
            return link
    raise NodeError(
        what=f"{node}: no interface holds {wanted}",
        why="nodes.yaml gives it as this node's private address; a translated (NAT) address cannot be bound to",
        fix="correct `private_address` in nodes.yaml, or remove it to have it found by the profile's subnet",
        context={"node": node, "found": _listing(found), "wanted": wanted},
    )


def _all_links(interfaces: tuple[Interface, ...]) -> list[PrivateLink]:
    """Every address: what a person names may be on any interface."""
    return [PrivateLink(each.address, interface.name) for interface in interfaces for each in interface.addresses]


def _own_links(interfaces: tuple[Interface, ...]) -> Iterator[PrivateLink]:
    """The machine's own lasting addresses."""
    for interface in interfaces:
        if not interface.is_up or interface.kind in _VIRTUAL_KINDS or _VIRTUAL_NAMES.fullmatch(interface.name):
            continue
        for each in interface.addresses:
            if not each.is_secondary:  # a floating address may move to another machine
                yield PrivateLink(each.address, interface.name)


def _listing(links: list[PrivateLink]) -> str:
    return ", ".join(f"{link.address} on {link.interface}" for link in links) or "no global address at all"
