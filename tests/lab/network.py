"""The lab's network: a control namespace with two bridges, and two cables from each node into it.

Nothing in it has a route out. The control namespace forwards, and has no route to forward by, so that a connection
to the outside fails at once ("network unreachable") instead of hanging, or worse, succeeding.
"""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING

from tests.lab import cache, folders
from tests.lab.commands import run
from tests.lab.kernel import NETNS_FOLDER, in_netns
from tests.lab.mountinfo import is_mounted
from tests.lab.naming import CONTROL_ADDRESS, PRIVATE_SUBNET, PUBLIC_SUBNET

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from ipaddress import IPv4Address

    from tests.lab.mountinfo import is_mounted
from tests.lab.naming import LabNames, NodeNames

PUBLIC_INTERFACE = "eth0"
PRIVATE_INTERFACE = "ens6"
BRIDGES = {PUBLIC_INTERFACE: "public", PRIVATE_INTERFACE: "private"}
CONNECT_TIMEOUT_S = 2.0
# What a shaped cable lets pass at once, and how long it makes packets wait. Measured at 10 to 1000 Mbit/s: one TCP
# stream has 0.95 of the rate (the rest are headers), two in opposite directions have 0.9 or more each. A burst of many
# milliseconds would hold up the acknowledgements of the other direction; one below 64 KiB, the kernel's largest packet
# before a card cuts it up, would have every packet cut up and received by itself, which no real card does.
TBF_BURST_S = 0.004
TBF_BURST_BYTES = range(72 * 1024, 256 * 1024)
TBF_LATENCY_MS = 20


def build(lab: LabNames, nodes: Sequence[NodeNames]) -> None:
    """Make what is missing of the namespaces, bridges and cables."""
    with _netns_lock():
        for netns in (lab.control_netns, *(node.netns for node in nodes)):
            if not exists(netns):
                run("ip", "netns", "add", netns)
    _bridges(lab.control_netns)
    for node in nodes:
        _connect(lab.control_netns, node)


def remove(lab: LabNames) -> None:
    """Delete every namespace of this lab, whoever made it; cables and bridges go with them."""
    with _netns_lock():
        if not NETNS_FOLDER.is_dir():
            return
        for path in sorted(NETNS_FOLDER.iterdir()):
            if path.name == lab.control_netns or path.name.startswith(f"{lab.control_netns}-"):
                run("ip", "netns", "delete", path.name)
        if is_mounted(NETNS_FOLDER) and not any(NETNS_FOLDER.iterdir()):
            # `ip netns add` mounts the folder on itself and leaves it so.
            run("umount", str(NETNS_FOLDER))
            NETNS_FOLDER.rmdir()


def _netns_lock() -> AbstractContextManager[None]:
    return cache.locked(folders.cache() / "netns.lock")


def _bridges(control: str) -> None:
    if _has_link(control, BRIDGES[PUBLIC_INTERFACE]):
        return
    _ip(
        control,
        ["link set lo up"]
        + [f"link add {bridge} type bridge" for bridge in BRIDGES.values()]
        + [f"link set {bridge} up" for bridge in BRIDGES.values()]
        + [f"addr add {CONTROL_ADDRESS}/{PUBLIC_SUBNET.prefixlen} dev {BRIDGES[PUBLIC_INTERFACE]}"],
    )
    run(*enter(control), "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")


def _connect(control: str, node: NodeNames) -> None:
    if _has_link(node.netns, PUBLIC_INTERFACE):
        return
    cables = [
        line
        for interface, bridge in BRIDGES.items()
        for line in (
            f"link add {node.bridge_port(interface)} type veth peer name {interface} netns {node.netns}",
            f"link set {node.bridge_port(interface)} master {bridge} up",
        )
    ]
    _ip(control, cables)
    _ip(
        node.netns,
        [
            "link set lo up",
            f"addr add {node.address}/{PUBLIC_SUBNET.prefixlen} dev {PUBLIC_INTERFACE}",
            f"addr add {node.private_address}/{PRIVATE_SUBNET.prefixlen} dev {PRIVATE_INTERFACE}",
            f"link set {PUBLIC_INTERFACE} up",
            f"link set {PRIVATE_INTERFACE} up",
            f"route add default via {CONTROL_ADDRESS}",
        ],
    )
    # As distributions set it: any user may ping.
    run(*enter(node.netns), "sysctl", "-q", "-w", "net.ipv4.ping_group_range=0 2147483647")


def exists(netns: str) -> bool:
    return (NETNS_FOLDER / netns).exists()


def enter(netns: str) -> list[str]:
    """The argv prefix that runs a program in the namespace (`ip netns exec` would also hide the cgroup mounts)."""
    return ["nsenter", f"--net={NETNS_FOLDER / netns}", "--"]


def set_cables(lab: LabNames, node: NodeNames, state: str) -> None:
    """Pull ("down") or plug ("up") both of a node's cables, at the bridge's end."""
    _ip(lab.control_netns, [f"link set {node.bridge_port(interface)} {state}" for interface in BRIDGES])


def shape(lab: LabNames, node: NodeNames, interface: str, mbit: int) -> None:
    """Limit one of a node's cables to so many Mbit/s each way; 0 lifts the limit."""
    for netns, device in ((lab.control_netns, node.bridge_port(interface)), (node.netns, interface)):
        if mbit:
            burst = int(mbit * 1_000_000 / 8 * TBF_BURST_S)
            burst = min(max(burst, TBF_BURST_BYTES.start), TBF_BURST_BYTES.stop)
            rate = ("rate", f"{mbit}mbit", "burst", str(burst), "latency", f"{TBF_LATENCY_MS}ms")
            run("tc", "-n", netns, "qdisc", "replace", "dev", device, "root", "tbf", *rate)
        else:
            run("tc", "-n", netns, "qdisc", "delete", "dev", device, "root", check=False)


def answers_ssh(lab: LabNames, address: IPv4Address) -> bool:
    """True when something at the node's port 22 introduces itself as an SSH server."""

    def banner() -> bool:
        try:
            with socket.create_connection((str(address), 22), timeout=CONNECT_TIMEOUT_S) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    return in_netns(lab.control_netns, banner)


def answers_http(netns: str, host: str, port: int, path: str) -> bool:
    """True when an HTTP server answers at all below 500: ready to serve, if only to say no."""

    def get() -> bool:
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return in_netns(netns, get)


def _has_link(netns: str, interface: str) -> bool:
    return run("ip", "-n", netns, "link", "show", "dev", interface, check=False).returncode == 0


def _ip(netns: str, lines: Sequence[str]) -> None:
    run("ip", "-n", netns, "-batch", "-", stdin="\n".join(lines) + "\n")
