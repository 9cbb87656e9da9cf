"""Pools and nodes -> replicas -> node ranks -> GPU ranks. Plain data and pure functions; addresses are inputs."""

from collections.abc import Iterator
from dataclasses import dataclass

from k3deploy.domain.faults import Fault, raise_if_any, shown
from k3deploy.domain.names import NodeName, NodeRank, PoolName, ReplicaName
from k3deploy.domain.nodes_file import NodesFile
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

    def rank_of(self, node: NodeName) -> Rank:
        """The place of one of its own nodes."""
        return next(rank for rank in self.ranks if rank.node == node)

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
        need = pool.replicas.count * pool.replicas.nodes_each
        named = [name for name, wanted in nodes if wanted == pool.name][:need]
        filling = waiting[: need - len(named)]
        if len(named) + len(filling) < need:
            raise ValueError(f"pool {pool.name} needs {need} nodes, has {len(named) + len(filling)}")
        waiting = waiting[len(filling) :]
        chosen = {*named, *filling}
        in_order = [name for name, _ in nodes if name in chosen]
        replicas += _replicas_of(pool, in_order, profile.hardware.gpus_per_node)
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


def assign(profile: Profile, nodes_file: NodesFile, where: str = "nodes.yaml") -> Topology:
    """Every node of the file with its replica and rank. Raises ProfileError or ProfileFaults when file and profile
    do not go together: an unknown pool, too few nodes, or nodes that would be paid for and do nothing.
    """
    raise_if_any(list(_unknown_pools(profile, nodes_file, where)), where)
    raise_if_any(list(_too_few(profile, nodes_file, where)), where)
    topology = place(
        profile,
        tuple((NodeName(node.name), None if node.pool is None else PoolName(node.pool)) for node in nodes_file.nodes),
    )
    raise_if_any(list(_unused(profile, nodes_file, topology, where)), where)
    return topology


def _unknown_pools(profile: Profile, nodes_file: NodesFile, where: str) -> Iterator[Fault]:
    known = [pool.name for pool in profile.pools]
    for index, node in enumerate(nodes_file.nodes):
        if node.pool is not None and node.pool not in known:
            yield Fault(
                f"{node.name} is in a pool that {profile.name} does not have",
                "write one of its pools, or leave `pool` out",
                path=("nodes", index, "pool"),
                at=where,
                found=shown(node.pool),
                wanted=f"one of {', '.join(known)}",
            )


def _too_few(profile: Profile, nodes_file: NodesFile, where: str) -> Iterator[Fault]:
    free = sum(node.pool is None for node in nodes_file.nodes)
    for pool in profile.pools:
        replicas = pool.replicas
        need = replicas.count * replicas.nodes_each
        named = sum(node.pool == pool.name for node in nodes_file.nodes)
        filling = min(free, max(0, need - named))
        free -= filling
        missing = need - named - filling
        if missing > 0:
            yield Fault(
                f"pool {pool.name} of {profile.name} lacks {missing} node{'s' if missing > 1 else ''}",
                f"add {missing} more to {where}, or take a profile for fewer nodes",
                path=("nodes",),
                at=where,
                found=f"{named + filling}",
                wanted=f"{need}: {replicas.count} replica{'s' if replicas.count > 1 else ''} "
                f"of {replicas.nodes_each} node{'s' if replicas.nodes_each > 1 else ''}",
            )


def _unused(profile: Profile, nodes_file: NodesFile, topology: Topology, where: str) -> Iterator[Fault]:
    unused = [node.name for node in nodes_file.nodes if node.name not in topology.nodes]
    if unused:
        yield Fault(
            f"{profile.name} has no work for {', '.join(unused)}",
            f"remove {'it' if len(unused) == 1 else 'them'} from {where} and give the machine"
            f"{'' if len(unused) == 1 else 's'} back, or take a profile for more nodes",
            path=("nodes",),
            at=where,
            found=f"{len(nodes_file.nodes)} nodes",
            wanted=f"{len(topology.nodes)} nodes",
            why="a node that does nothing costs as much as one that works",
        )
