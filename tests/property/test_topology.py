"""Placement over any cluster: every rank placed once, every node used once, in the order of the file."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from k3deploy.adapters import profiles
from k3deploy.domain.launch.base import Address
from k3deploy.domain.launch.render import render
from k3deploy.domain.names import NodeName, PoolName
from k3deploy.domain.profile.models import Pool, Profile
from k3deploy.domain.topology import place

_BASE = profiles.load_profile("h100x32")


def _pool(name: str, count: int, nodes_each: int) -> Pool:
    replicas: dict[str, Any] = {"count": count, "nodes_each": nodes_each, "parallel": {"tensor": 8 * nodes_each}}
    return Pool.model_validate({"name": name, "replicas": replicas})


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[Profile, tuple[tuple[NodeName, PoolName | None], ...]]:
    """A profile of one to three pools, and exactly its nodes in any order; some of them name their pool."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3))
    pools = [_pool(f"p{i}", count, each) for i, (count, each) in enumerate(sizes)]
    homes = [pool.name for pool in pools for _ in range(pool.replicas.count * pool.replicas.nodes_each)]
    homes = draw(st.permutations(homes))
    nodes = tuple((NodeName(f"n{i}"), PoolName(home) if draw(st.booleans()) else None) for i, home in enumerate(homes))
    return _BASE.model_copy(update={"pools": tuple(pools)}), nodes


@settings(max_examples=150, deadline=None)
@given(_clusters())
def test_every_rank_is_placed_once(case: tuple[Profile, tuple[tuple[NodeName, PoolName | None], ...]]) -> None:
    profile, nodes = case
    topology = place(profile, nodes)
    assert sorted(topology.nodes) == sorted(name for name, _ in nodes)
    order = [name for name, _ in nodes]
    wanted = dict(nodes)
    for replica in topology.replicas:
        pool = next(pool for pool in profile.pools if pool.name == replica.pool)
        assert [rank.node_rank for rank in replica.ranks] == list(range(pool.replicas.nodes_each))
        positions = [order.index(node) for node in replica.nodes]
        assert positions == sorted(positions)
        assert all(wanted[node] in (None, replica.pool) for node in replica.nodes)
    names = [replica.name for replica in topology.replicas]
    assert len(set(names)) == len(names) == sum(pool.replicas.count for pool in profile.pools)


@settings(max_examples=50, deadline=None)
@given(_clusters())
def test_every_launch_knows_its_own_place(case: tuple[Profile, tuple[tuple[NodeName, PoolName | None], ...]]) -> None:
    profile, nodes = case
    topology = place(profile, nodes)
    addresses = {name: Address(name, f"10.0.{i}.1", "ens6") for i, (name, _) in enumerate(nodes)}
    launches = render(profile, topology, addresses, image="i")
    assert [launch.node for launch in launches] == list(topology.nodes)
    for launch in launches:
        flags = {flag.name: flag.value for flag in launch.flags}
        head = topology.replica(launch.replica).head.node
        assert flags["--host"] == addresses[launch.node].private_address
        if launch.node_count > 1:
            assert flags["--node-rank"] == str(launch.node_rank)
            assert flags["--nnodes"] == str(launch.node_count)
            assert flags["--dist-init-addr"] == f"{addresses[head].private_address}:20000"
        else:
            assert "--dist-init-addr" not in flags
