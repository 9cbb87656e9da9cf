"""Stop: rank 0 of each replica first, then its followers. A node that cannot be reached does not keep the others up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import K3Error
from k3deploy.domain.launch.record import NodeSeen
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.engine_actions import StopRanks
from k3deploy.phases.on_each import try_each
from k3deploy.phases.teardown.site import TeardownSite


@dataclass(frozen=True)
class ReplicaHeld:
    seen: Mapping[NodeName, NodeSeen]
    away: Mapping[NodeName, K3Error]

    @property
    def note(self) -> str:
        """Said beside whatever else there is to say; the node's own phases then fail, and name it."""
        return f"; not reached: {', '.join(self.away)}" if self.away else ""


@dataclass(frozen=True)
class EngineStopPhase:
    site: TeardownSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("engine-stop")

    @property
    def title(self) -> str:
        return "Stop the engine, rank 0 first"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return ()

    def targets(self) -> Sequence[Target]:
        return [replica.target for replica in self.site.topology.replicas]

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.container_question,))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self.site.digest

    def probe(self, svc: Services, target: Target) -> ReplicaHeld:
        return ReplicaHeld(*try_each(target.nodes, lambda node: self.site.seen(svc, node)))

    def plan(self, target: Target, seen: ReplicaHeld) -> Plan:
        containers = tuple(
            container
            for node, found in seen.seen.items()
            if found.container is not None
            and found.container.is_running
            and (container := self.site.ours(node, found)) is not None
        )
        if not containers:
            return Plan.noop(f"no rank of this run is running{seen.note}")
        stop_s = self.site.profile.timeouts.stop_s
        ranks = ", ".join(f"rank {each.node_rank} on {each.node}" for each in containers)
        return Plan.of(
            Step(
                f"stop {ranks}{', rank 0 first' if len(containers) > 1 else ''}{seen.note}",
                StopRanks(containers, stop_s),
                detail="\n".join(f"{each.node}: {' '.join(each.stop_command(stop_s).argv)}" for each in containers),
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        now = self.probe(svc, target)
        still = [
            str(node)
            for node, found in now.seen.items()
            if found.is_ours and found.container is not None and found.container.is_running
        ]
        if still:
            return Verdict.bad(
                f"still running on {', '.join(still)}",
                why="the container did not end, not even by SIGKILL within two minutes",
                fix="look at `docker ps` and `dmesg -T` on the node: a process may hang in the GPU driver; "
                "a reboot of the node ends it",
            )
        return Verdict.ok(f"no rank of this run is running{now.note}", away=[str(node) for node in now.away])
