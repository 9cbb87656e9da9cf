"""Placement: the order of the nodes file gives replicas and ranks; pools that are named are kept."""

import pytest

from k3deploy.adapters import profiles
from k3deploy.domain.names import NodeName, PoolName
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.topology import Topology, assign, place

_LONG = "{name: long, replicas: {count: 1, nodes_each: 2, parallel: {tensor: 8, decode_context: 8}}}"
_SHORT = "{name: short, replicas: {count: 2, nodes_each: 1, parallel: {tensor: 4}}}"
# A small model, so that four GPUs hold it.
_TWO_POOLS = [f"pools=[{_LONG}, {_SHORT}]", "model.shard_bytes=1000000"]


def _nodes(*names: str, pools: dict[str, str] | None = None) -> NodesFile:
    pools = pools or {}
    return NodesFile(nodes=tuple(NodeEntry(name=name, address=name, pool=pools.get(name)) for name in names))


def _shape(topology: Topology) -> dict[str, list[str]]:
    return {replica.name: list(replica.nodes) for replica in topology.replicas}


def _two_pools() -> Profile:
    return profiles.load("gb300-nvl72", _TWO_POOLS).profile


def test_the_order_of_the_file_is_the_order_of_the_ranks() -> None:
    topology = assign(profiles.load_profile("h100x32"), _nodes("d", "a", "c", "b"))
    replica = topology.replicas[0]
    assert [(rank.node, rank.node_rank, rank.gpus) for rank in replica.ranks] == [
        ("d", 0, 8),
        ("a", 1, 8),
        ("c", 2, 8),
        ("b", 3, 8),
    ]
    assert replica.head.node == "d"
    assert topology.replica_of(NodeName("c")) is replica


def test_nine_replicas_take_two_neighbours_each() -> None:
    topology = assign(profiles.load_profile("gb300-nvl72"), _nodes(*(f"n{i:02d}" for i in range(18))))
    assert _shape(topology) == {f"serve-{i}": [f"n{2 * i:02d}", f"n{2 * i + 1:02d}"] for i in range(9)}


def test_pools_are_filled_in_their_order() -> None:
    assert _shape(assign(_two_pools(), _nodes("a", "b", "c", "d"))) == {
        "long-0": ["a", "b"],
        "short-0": ["c"],
        "short-1": ["d"],
    }


def test_a_named_pool_is_kept_and_the_file_s_order_still_ranks() -> None:
    nodes = _nodes("a", "b", "c", "d", pools={"a": "short", "d": "long"})
    assert _shape(assign(_two_pools(), nodes)) == {"long-0": ["b", "d"], "short-0": ["a"], "short-1": ["c"]}


def test_place_leaves_surplus_nodes_alone() -> None:
    nodes: tuple[tuple[NodeName, PoolName | None], ...] = tuple((NodeName(f"n{i}"), None) for i in range(6))
    assert len(place(profiles.load_profile("h100x32"), nodes).nodes) == 4


def test_place_refuses_too_few() -> None:
    with pytest.raises(ValueError, match="pool serve needs 4 nodes, has 1"):
        place(profiles.load_profile("h100x32"), ((NodeName("a"), None),))
