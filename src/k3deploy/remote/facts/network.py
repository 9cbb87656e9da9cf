"""Interfaces with their addresses, the default route's source, and RDMA ports."""

import json
import os
import re
from typing import Any

from k3deploy.remote.reading import Reader, Unreadable, line, names, tool_output

# Flags of an address (as iproute2 names them) with which it can't be the node's own lasting address.
PASSING = ("temporary", "deprecated", "tentative", "dadfailed")


def network(read: Reader, root: str = "/") -> dict[str, Any]:
    """`root` is where /sys and /proc are looked for; anything but "/" is for tests."""
    return {
        "interfaces": read.read("interfaces", lambda: interfaces(tool_output(["ip", "-j", "-d", "addr"]))),
        "default_address": read.read("default_address", _default_address),
        "hcas": read.read("hcas", lambda: hcas(os.path.join(root, "sys/class/infiniband"))),
        "port_range": read.read("port_range", lambda: _port_range(root)),
    }


def interfaces(ip_json: str) -> list[dict[str, Any]]:
    """From `ip -j -d addr`. `kind` is the kernel's word for a virtual link (bridge, dummy, veth), else null."""
    found = []
    for link in json.loads(ip_json):
        if not link:  # iproute2 prints {} for links that a filter left out
            continue
        found.append(
            {
                "name": link["ifname"],
                "kind": link.get("linkinfo", {}).get("info_kind"),
                "is_up": "UP" in link.get("flags", ()) and "NO-CARRIER" not in link.get("flags", ()),
                "mtu": link.get("mtu"),
                "addresses": [
                    {
                        "address": each["local"],
                        "prefix": each["prefixlen"],
                        "is_secondary": bool(each.get("secondary")),
                    }
                    for each in link.get("addr_info", ())
                    if "local" in each and each.get("scope") == "global" and not any(each.get(f) for f in PASSING)
                ],
            }
        )
    return found


def _default_address() -> str | None:
    """The source address of packets to the world; None where there is no default route."""
    for family, anywhere in (("-4", "192.0.2.1"), ("-6", "2001:db8::1")):  # documentation addresses: nothing is sent
        try:
            routes = json.loads(tool_output(["ip", "-j", family, "route", "get", anywhere]))
        except Unreadable:  # "Network is unreachable" ends with 2
            continue
        if routes and "prefsrc" in routes[0]:
            return str(routes[0]["prefsrc"])
    return None


def hcas(folder: str) -> list[dict[str, Any]]:
    """Every RDMA port. `state` as the kernel words it after the number: ACTIVE, DOWN, INIT, ARMED."""
    found = []
    for device in names(folder):
        for port in names(os.path.join(folder, device, "ports")):
            place = os.path.join(folder, device, "ports", port)
            found.append(
                {
                    "device": device,
                    "port": int(port),
                    "state": line(os.path.join(place, "state")).partition(":")[2].strip(),
                    "link_layer": line(os.path.join(place, "link_layer")),
                    "rate_gbps": _rate_gbps(os.path.join(place, "rate")),
                }
            )
    return found


def _rate_gbps(path: str) -> float | None:
    """The kernel writes "400 Gb/sec (4X NDR)"."""
    try:
        match = re.match(r"([\d.]+) Gb/sec", line(path))
    except Unreadable:
        return None
    return float(match.group(1)) if match else None


def _port_range(root: str) -> list[int]:
    low, high = line(os.path.join(root, "proc/sys/net/ipv4/ip_local_port_range")).split()
    return [int(low), int(high)]
