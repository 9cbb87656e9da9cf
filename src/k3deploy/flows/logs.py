"""`logs`: what the engine says, from its nodes while they can be reached, else what a teardown kept in the store."""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.domain.errors import NodeError, UsageError
from k3deploy.domain.launch.capacity import capacity
from k3deploy.domain.launch.readiness import stage_seconds
from k3deploy.domain.launch.record import ContainerSeen, NodeSeen
from k3deploy.domain.launch.replica_watch import RankEnd, RankWatch
from k3deploy.domain.launch.watch import RankLog
from k3deploy.domain.names import NodeName
from k3deploy.flows.session import Session
from k3deploy.phases.engine_site import EngineSite
from k3deploy.phases.log_streams import LogStreams, log_program
from k3deploy.phases.on_each import try_each
from k3deploy.phases.teardown.export_logs import log_folder

_READ_TIMEOUT_S: Final = 300.0
_FOLLOW_S: Final = 7 * 86400.0
_TICK_S: Final = 1.0


@dataclass(frozen=True)
class Line:
    """`at`: epoch seconds of the node's clock."""

    at: float
    text: str


@dataclass(frozen=True)
class NodeLog:
    """`source`: the container on the node, or the store's copy; `why`: there is neither."""

    node: NodeName
    source: str
    lines: tuple[Line, ...]
    container: ContainerSeen | None = None
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        lines = [{"at": line.at, "text": line.text} for line in self.lines]
        return {"node": self.node, "source": self.source, "why": self.why, "lines": lines}


def chosen(session: Session, *, node: str | None, replica: str | None) -> tuple[NodeName, ...]:
    """The nodes that are meant. Raises UsageError for a name that the run does not have."""
    if node is not None:
        if node not in session.nodes:
            raise UsageError(
                what=f"no node of this run is called {node!r}", fix="use one of: " + ", ".join(session.nodes)
            )
        return (NodeName(node),)
    if replica is not None:
        found = [each for each in session.topology.replicas if each.name == replica]
        if not found:
            names = ", ".join(str(each.name) for each in session.topology.replicas)
            raise UsageError(what=f"no replica of this run is called {replica!r}", fix=f"use one of: {names}")
        return found[0].nodes
    return session.nodes


def read(session: Session, nodes: Sequence[NodeName], *, tail: int | None) -> tuple[NodeLog, ...]:
    """The last lines of each node's log (all with `tail` None), in the order of the nodes."""
    found, failed = try_each(nodes, lambda node: _from_node(session, node, tail))
    logs = []
    for node in nodes:
        log = found.get(node)
        if log is None or log.why:
            why = log.why if log is not None else failed[node].what
            log = _from_store(session, node, tail, why)
        logs.append(log)
    return tuple(logs)


def follow(session: Session, nodes: Sequence[NodeName], *, tail: int) -> Iterator[tuple[NodeName, Line]]:
    """Lines of all nodes as they come, until every container has ended or somebody interrupts.

    Raises NodeError when a node has no container of this run, and what its connection raises.
    """
    site = session.site(EngineSite)
    programs = {}
    for node in nodes:
        container = _ours(session, site, node)
        if container is None:
            raise NodeError(
                what=f"{node}: there is no container of this run to follow",
                fix="`k3deploy logs` without --follow shows what the store kept",
                context={"node": node},
            )
        programs[node] = log_program(container.id, follow=True, timeout_s=_FOLLOW_S, tail=tail)
    ended: set[NodeName] = set()
    with LogStreams(session.svc.nodes, programs) as streams:
        while len(ended) < len(programs) and not session.svc.cancel.is_set:
            for word in streams.words(_TICK_S):
                for at, text in word.lines:
                    yield word.node, Line(at, text)
                if word.end is not None:
                    ended.add(word.node)


def stages(session: Session, nodes: Sequence[NodeName]) -> tuple[RankWatch, ...]:
    """Every node's whole log as the watcher understands it."""
    return tuple(_watch(session, log) for log in read(session, nodes, tail=None))


def stage_dict(session: Session, rank: RankWatch) -> Mapping[str, Any]:
    """The documented JSON shape of one rank's stage."""
    replica = session.topology.replica_of(rank.node)
    width = session.profile.pool(replica.pool).replicas.parallel.decode_context
    cause = rank.log.cause
    return {
        "node": rank.node,
        "replica": replica.name,
        "node_rank": rank.node_rank,
        "stage": rank.log.stage.name.lower(),
        "standing": rank.standing,
        "stages_s": stage_seconds(rank),
        "figures": rank.log.figures,
        "capacity": capacity(rank.log, decode_context=width).as_dict(),
        "failure": None
        if cause is None
        else {"name": cause.failure.name, "line": cause.line, "fix": cause.failure.fix},
    }


def _watch(session: Session, found: NodeLog) -> RankWatch:
    node_rank = int(session.topology.replica_of(found.node).rank_of(found.node).node_rank)
    first = found.lines[0].at if found.lines else 0.0
    log = RankLog(found.container.started_at if found.container else first)
    for line in found.lines:
        log.feed(line.text, line.at)
    end = None
    if found.container is not None and not found.container.is_running:
        seen = found.container
        end = RankEnd(seen.status, seen.exit_code, seen.oom_killed, seen.error, seen.finished_at)
    last = found.lines[-1].at if found.lines else log.started_at
    return RankWatch(found.node, node_rank, log, last, end)


def _ours(session: Session, site: EngineSite, node: NodeName) -> ContainerSeen | None:
    seen = NodeSeen.parse(session.svc.survey.ask(node, site.container_question))
    return seen.container if seen.is_ours else None


def _from_node(session: Session, node: NodeName, tail: int | None) -> NodeLog:
    container = _ours(session, session.site(EngineSite), node)
    if container is None:
        return NodeLog(node, "node", (), why="no container of this run is there")
    program = log_program(container.id, follow=False, timeout_s=_READ_TIMEOUT_S, tail=tail)
    lines: list[Line] = []
    for item in session.svc.nodes[node].follow(program):
        if "progress" in item:
            lines += [Line(float(at), str(text)) for at, text in item["progress"]["lines"]]
    return NodeLog(node, "node", tuple(lines), container)


def _from_store(session: Session, node: NodeName, tail: int | None, why: str) -> NodeLog:
    """The newest engine log that was kept of this node."""
    kept = []
    for key in session.svc.store.list(log_folder(session.record.run_id, node)):
        if key.rsplit("/", 1)[-1].startswith("engine-"):
            stored = session.svc.store.get(key)
            lines = _lines(gzip.decompress(stored.data).decode("utf-8", "replace")) if stored is not None else ()
            if lines:
                kept.append((lines[0].at, key, lines))
    if not kept:
        return NodeLog(node, "none", (), why=f"{why}, and the store keeps no log of it")
    _, key, lines = max(kept)
    return NodeLog(node, f"store: {key}", lines if tail is None else lines[-tail:])


def _lines(text: str) -> tuple[Line, ...]:
    """`<epoch seconds> <text>` a line, as the export wrote them."""
    found = []
    for row in text.splitlines():
        stamp, _, rest = row.partition(" ")
        try:
            found.append(Line(float(stamp), rest))
        except ValueError:  # the mark of what was left out
            found.append(Line(found[-1].at if found else 0.0, row))
    return tuple(found)
