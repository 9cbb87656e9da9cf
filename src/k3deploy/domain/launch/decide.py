"""What is to become of a replica's containers: stay, start, or start again as a whole. Others' are never touched."""

from collections.abc import Sequence
from dataclasses import dataclass

from k3deploy.domain.errors import EngineError
from k3deploy.domain.launch.base import Launch
from k3deploy.domain.launch.record import LaunchRecord, NodeSeen
from k3deploy.domain.names import RunId


@dataclass(frozen=True)
class RankSeen:
    """One rank: what should run, what does, and which TCP ports it needs on its node."""

    launch: Launch
    seen: NodeSeen
    ports: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"rank {self.launch.node_rank} on {self.launch.node}"


def check_ours(ranks: Sequence[RankSeen], run: RunId) -> None:
    """Raise EngineError when a container under our name is not provably ours: it is never stopped or removed."""
    for rank in ranks:
        container = rank.seen.container
        if container is None or rank.seen.is_ours:
            continue
        node = rank.launch.node
        facts = {
            "node": node,
            "found": f"container {container.id[:12]} of image {container.image}, {container.how_it_is}",
            "wanted": "no container of that name, or the one that this run started",
        }
        if rank.seen.other_runs:
            other = rank.seen.other_runs[-1]
            raise EngineError(
                what=f"{node}: the name {container.name!r} belongs to a container of another run, {other}",
                why=f"this is run {run}; two runs cannot share a node",
                fix=f"`k3deploy teardown --run-id {other} --confirm`, then the same command again",
                context=facts,
            )
        raise EngineError(
            what=f"{node}: the name {container.name!r} belongs to a container that k3deploy did not create",
            why="nothing that this run noted on the node says that it started this container, so it is left alone",
            fix=f"look at it with `docker inspect {container.name}` on {node}; rename or remove it yourself, "
            "then the same command again",
            context=facts,
        )


def check_ports(ranks: Sequence[RankSeen]) -> None:
    """Raise EngineError when a process of somebody else listens on a port that the launch needs."""
    for rank in ranks:
        own = rank.seen.container.id if rank.seen.container else None
        for holder in rank.seen.holders:
            if holder.port not in rank.ports or (own is not None and holder.container == own):
                continue
            raise EngineError(
                what=f"{rank.launch.node}: port {holder.port} is held by {holder.text}",
                why="the engine uses the node's own network, so its ports must be free there",
                fix="stop that process, or choose another port in the profile (network.api_port, "
                "network.rendezvous_port); then the same command again",
                context={"node": rank.launch.node, "found": holder.text, "wanted": f"port {holder.port} free"},
            )


def faults(ranks: Sequence[RankSeen], run: RunId) -> tuple[str, ...]:
    """Why the replica cannot stay as it is, for each rank concerned, the one that ended first before the others that
    followed it; empty when every rank runs as wanted."""
    found = []
    for rank in sorted(ranks, key=_ended_at):
        container, wanted = rank.seen.container, LaunchRecord.of(rank.launch, run)
        if container is None:
            found.append(f"{rank.label} is not there")
        elif not container.is_running:
            found.append(f"{rank.label} {container.does}")
        elif rank.seen.noted is None or rank.seen.noted.digest != wanted.digest:
            found.append(f"{rank.label} runs another launch ({_difference(rank.seen.noted, wanted)})")
    return tuple(found)


def _ended_at(rank: RankSeen) -> float:
    container = rank.seen.container
    if container is None:
        return 0.0  # nothing is known of its end, so nothing else is known to have come first
    return float("inf") if container.is_running else container.finished_at


def _difference(noted: LaunchRecord | None, wanted: LaunchRecord) -> str:
    """The first words that differ, enough to see why."""
    if noted is None:
        return "nothing noted"
    gone = [word for word in noted.argv if word not in wanted.argv]
    new = [word for word in wanted.argv if word not in noted.argv]
    shown = [f"{' '.join(gone[:3])} -> {' '.join(new[:3])}"] if gone or new else ["same words in another order"]
    return shown[0]
