"""What a container said before it ended: read once, when there is a failure to explain."""

from k3deploy.contracts import Services
from k3deploy.domain.launch.record import ContainerSeen
from k3deploy.domain.launch.replica_watch import RankEnd, RankWatch
from k3deploy.domain.launch.watch import RankLog
from k3deploy.domain.names import NodeName
from k3deploy.phases.log_streams import log_program

_TIMEOUT_S = 60.0


def last_words(svc: Services, node: NodeName, node_rank: int, container: ContainerSeen) -> RankWatch:
    """Its whole log as the watcher understands it, and how it ended. Raises what the node's connection raises."""
    log = RankLog(container.started_at)
    now = container.started_at
    program = log_program(container.id, follow=False, timeout_s=_TIMEOUT_S, since=container.started_at)
    for item in svc.nodes[node].follow(program):
        if "progress" in item:
            now = item["progress"]["now"]
            for at, text in item["progress"]["lines"]:
                log.feed(text, at)
    end = RankEnd(
        container.status, container.exit_code, container.oom_killed, container.error, container.finished_at or now
    )
    return RankWatch(node, node_rank, log, now, end)
