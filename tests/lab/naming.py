"""Every name and address of a lab, derived from its name alone, so that two labs never meet.

All labs use the same subnets, since each has network namespaces of its own; whatever is visible on the machine
(namespaces, cgroups, machine names) carries the lab's short id.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "k3lab"
PUBLIC_SUBNET = IPv4Network("10.77.0.0/24")
PRIVATE_SUBNET = IPv4Network("10.0.0.0/24")
CONTROL_ADDRESS = PUBLIC_SUBNET[1]
FIRST_NODE_HOST = 11
MAX_NODES = 64
REGISTRY_PORT = 5000
HUB_PORT = 8800
MIRROR_PORT = 8801
S3_PORT = 9000
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


@dataclass(frozen=True)
class NodeNames:
    """Where one node is found. `index` counts from 1, as the names people read do."""

    index: int
    lab_id: str

    @property
    def name(self) -> str:
        """Host name, and the name in nodes.yaml."""
        return f"gpu-{self.index:02d}"

    @property
    def address(self) -> IPv4Address:
        """On eth0: what an operator reaches by SSH."""
        return PUBLIC_SUBNET[FIRST_NODE_HOST + self.index - 1]

    @property
    def private_address(self) -> IPv4Address:
        """On ens6: what only the other nodes reach, and what engines should talk over."""
        return PRIVATE_SUBNET[FIRST_NODE_HOST + self.index - 1]

    @property
    def netns(self) -> str:
        return f"{PREFIX}-{self.lab_id}-{self.name}"

    @property
    def machine(self) -> str:
        return f"{PREFIX}-{self.lab_id}-{self.name}"

    def bridge_port(self, interface: str) -> str:
        """The bridge's end of this node's cable, inside the control namespace."""
        return f"{interface}-{self.index:02d}"


@dataclass(frozen=True)
class LabNames:
    """A lab's identity: its name, and the folder that makes the same name of another user another lab."""

    name: str
    folder: Path

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise LabError(
                f"{self.name!r} can't be a lab's name",
                why="it becomes part of network namespace and cgroup names",
                fix="use up to 31 lower-case letters, digits and dashes",
            )

    @cached_property
    def lab_id(self) -> str:
        return hashlib.sha256(str(self.folder).encode()).hexdigest()[:6]

    @property
    def control_netns(self) -> str:
        return f"{PREFIX}-{self.lab_id}"

    @property
    def cgroup(self) -> str:
        return f"{PREFIX}-{self.lab_id}"

    def nodes(self, count: int) -> tuple[NodeNames, ...]:
        if not 1 <= count <= MAX_NODES:
            raise LabError(f"{count} nodes", why=f"a lab has 1 to {MAX_NODES}", fix="--nodes N")
        return tuple(NodeNames(index, self.lab_id) for index in range(1, count + 1))
