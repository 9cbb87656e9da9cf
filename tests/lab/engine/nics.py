"""Network interfaces and their IPv4 addresses, asked from the kernel over netlink; the rules NCCL and Gloo follow."""

import ipaddress
import os
import socket
import struct

_DUMP_REQUEST = 0x301
_GET_ADDRESS, _NEW_ADDRESS, _DONE = 22, 20, 3
_LOCAL = 2


def addresses() -> dict[str, list[ipaddress.IPv4Interface]]:
    """IPv4 addresses by interface name."""
    names = dict(socket.if_nameindex())
    found: dict[str, list[ipaddress.IPv4Interface]] = {name: [] for name in names.values()}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.sendall(struct.pack("=IHHIIBBBBI", 24, _GET_ADDRESS, _DUMP_REQUEST, 1, 0, socket.AF_INET, 0, 0, 0, 0))
        while True:
            data = netlink.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == _DONE:
                    return found
                if kind == _NEW_ADDRESS:
                    _, prefix, _, _, index = struct.unpack_from("=BBBBI", data, 16)
                    if address := _attribute(data[24:length], _LOCAL):
                        text = f"{socket.inet_ntoa(address)}/{prefix}"
                        found.setdefault(names.get(index, "?"), []).append(ipaddress.IPv4Interface(text))
                data = data[(length + 3) & ~3 :]


def _attribute(data: bytes, wanted: int) -> bytes | None:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if kind == wanted:
            return data[4:length]
        data = data[(length + 3) & ~3 :]
    return None


def holder(address: str) -> str | None:
    """The interface that holds an address; the whole of 127.0.0.0/8 is on the loopback interface."""
    wanted = ipaddress.ip_address(address)
    for name, interfaces in addresses().items():
        for interface in interfaces:
            if interface.ip == wanted or (interface.ip.is_loopback and wanted in interface.network):
                return name
    return None


def is_local(host: str) -> bool:
    """Whether a server on this machine can listen on this host name or address."""
    try:
        return holder(socket.gethostbyname(host)) is not None
    except OSError:
        return False


def check_interfaces() -> None:
    """Raise what Gloo, NCCL or ZeroMQ raise when the environment names interfaces or addresses that aren't here."""
    present = addresses()
    gloo = os.environ.get("GLOO_SOCKET_IFNAME")
    if gloo and not any(present.get(name) for name in gloo.split(",")):
        raise RuntimeError(
            f"[enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find interface for: [{gloo}]"
        )
    chosen = _nccl_interfaces(os.environ.get("NCCL_SOCKET_IFNAME", ""), present)
    if not chosen:
        raise RuntimeError(
            "NCCL error: internal error - please report this issue to the NCCL developers\n"
            "Last error:\nBootstrap : no socket interface found"
        )
    host_ip = os.environ.get("SGLANG_HOST_IP") or os.environ.get("HOST_IP")
    if not host_ip:
        return
    held_by = holder(host_ip)
    if held_by is None:
        raise OSError(f"Cannot assign requested address (addr='tcp://{host_ip}:*')")
    if os.environ.get("NCCL_SOCKET_IFNAME") and held_by not in chosen:
        raise RuntimeError(
            "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\nLast error:\n"
            f"socketStartConnect: Connect to {host_ip} failed : No route to host (interface {chosen[0]})"
        )


def _nccl_interfaces(pattern: str, present: dict[str, list[ipaddress.IPv4Interface]]) -> list[str]:
    """`eth` is a prefix, `=eth0` exact, `^docker` excludes."""
    up = [name for name, held in present.items() if held]
    if not pattern:
        return up
    excludes = pattern.startswith("^")
    body = pattern.removeprefix("^")
    is_exact = body.startswith("=")
    names = body.removeprefix("=").split(",")

    def matches(name: str) -> bool:
        return name in names if is_exact else any(name.startswith(prefix) for prefix in names)

    return [name for name in up if matches(name) != excludes]
