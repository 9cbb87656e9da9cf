"""The address plan: every name and address of a lab follows from its name, and no two collide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.errors import LabError
from tests.lab.naming import CONTROL_ADDRESS, MAX_NODES, PRIVATE_SUBNET, PUBLIC_SUBNET, LabNames

# IFNAMSIZ is 16 with its closing zero.
MAX_INTERFACE_NAME = 15


def lab(name: str = "one", home: str = "/home/a") -> LabNames:
    return LabNames(name, Path(home) / name)


def test_first_node() -> None:
    node = lab().nodes(1)[0]
    assert (node.name, str(node.address), str(node.private_address)) == ("gpu-01", "10.77.0.11", "10.0.0.11")


def test_nodes_share_nothing() -> None:
    nodes = lab().nodes(MAX_NODES)
    for values in (
        {node.name for node in nodes},
        {node.address for node in nodes},
        {node.private_address for node in nodes},
        {node.netns for node in nodes},
        {node.machine for node in nodes},
        {node.bridge_port("eth0") for node in nodes} | {node.bridge_port("ens6") for node in nodes},
    ):
        assert len(values) % MAX_NODES == 0


def test_addresses_stay_in_their_subnets() -> None:
    for node in lab().nodes(MAX_NODES):
        assert node.address in PUBLIC_SUBNET
        assert node.private_address in PRIVATE_SUBNET
        assert node.address != CONTROL_ADDRESS


def test_interface_names_fit_the_kernel() -> None:
    for node in lab().nodes(MAX_NODES):
        assert len(node.bridge_port("eth0")) <= MAX_INTERFACE_NAME


@pytest.mark.parametrize("other", [lab("two"), lab("one", home="/home/b")])
def test_two_labs_never_meet_on_the_machine(other: LabNames) -> None:
    mine = lab()
    assert mine.control_netns != other.control_netns
    assert mine.cgroup != other.cgroup
    assert {node.netns for node in mine.nodes(4)}.isdisjoint(node.netns for node in other.nodes(4))


def test_a_namespace_of_one_lab_is_no_prefix_match_for_another() -> None:
    """`network.remove` goes by "<control>-": all ids have one length, so no lab's name begins another's."""
    assert len(lab("a").lab_id) == len(lab("a-b").lab_id)


@pytest.mark.parametrize("name", ["", "Upper", "a_b", "-a", "a/b", "..", "x" * 32])
def test_names_that_would_break_paths_or_namespaces_are_refused(name: str) -> None:
    with pytest.raises(LabError, match="can't be a lab's name"):
        lab(name)


@pytest.mark.parametrize("count", [0, MAX_NODES + 1])
def test_a_lab_has_a_sane_number_of_nodes(count: int) -> None:
    with pytest.raises(LabError, match=f"{count} nodes"):
        lab().nodes(count)
