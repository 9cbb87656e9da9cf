"""Pools and nodes -> replicas -> node ranks -> GPU ranks. Plain data and pure functions; addresses are inputs."""

from dataclasses import dataclass

from k3deploy.domain.names import NodeName, NodeRank, PoolName, ReplicaName
from k3deploy.domain.profile.models import Pool, Profile
from k3deploy.domain.steps import Target


@dataclass(frozen=True)
class Rank:
    """One node's place in its replica: it owns `gpus` of the replica's tensor ranks."""

    node: NodeName
    node_rank: NodeRank
    gpus: int


@dataclass(frozen=True)
class Replica:
    """One whole copy of the model. `ranks[0]` is the head: the only node that answers HTTP."""

    name: ReplicaName
    pool: PoolName
    role: str
    ranks: tuple[Rank, ...]

    @property
    def head(self) -> Rank:
        return self.ranks[0]

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        return tuple(rank.node for rank in self.ranks)

    @property
    def target(self) -> Target:
        return Target.replica(self.name, self.nodes)


@dataclass(frozen=True)
class Topology:
    replicas: tuple[Replica, ...]

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        return tuple(node for replica in self.replicas for node in replica.nodes)

    def replica(self, name: str) -> Replica:
        return next(replica for replica in self.replicas if replica.name == name)

    def replica_of(self, node: NodeName) -> Replica:
        return next(replica for replica in self.replicas if node in replica.nodes)


def place(profile: Profile, nodes: tuple[tuple[NodeName, PoolName | None], ...]) -> Topology:
    """Give every node its replica and rank, in the order of the nodes file.

    A node that names a pool goes there; the others fill the pools in the profile's order. Nodes beyond what
    the profile needs stay unplaced (the caller decides whether that is an error). Raises ValueError when a pool
    lacks nodes.
    """
    waiting = [name for name, pool in nodes if pool is None]
    replicas: list[Replica] = []
    for pool in profile.pools:
        named = [name for name, wanted in nodes if wanted == pool.name]
        need = pool.replicas.count * pool.replicas.nodes_each
        chosen = (named + waiting)[:need]
        if len(chosen) < need:
            raise ValueError(f"pool {pool.name} needs {need} nodes, has {len(chosen)}")
        waiting = [name for name in waiting if name not in chosen]
        replicas += _replicas_of(pool, chosen, profile.hardware.gpus_per_node)
    return Topology(tuple(replicas))


def _replicas_of(pool: Pool, nodes: list[NodeName], gpus_per_node: int) -> list[Replica]:
    each = pool.replicas.nodes_each
    return [
        Replica(
            name=ReplicaName(f"{pool.name}-{index}"),
            pool=PoolName(pool.name),
            role=pool.replicas.role,
            ranks=tuple(
                Rank(node, NodeRank(rank), gpus_per_node)
                for rank, node in enumerate(nodes[index * each : (index + 1) * each])
            ),
        )
        for index in range(pool.replicas.count)
    ]
