"""Launch: every rank's container runs exactly what was rendered for it. A replica starts and ends as one whole."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import NodeError
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.launch.base import Launch
from k3deploy.domain.launch.decide import RankSeen, check_ours, check_ports, faults
from k3deploy.domain.launch.record import LaunchRecord, NodeSeen
from k3deploy.domain.launch.replica_watch import explain, first_failed, last_lines, then_again
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.engine_actions import MakeKey, NoteLaunches, OurContainer, RemoveContainers, StartRanks, StopRanks
from k3deploy.phases.engine_site import EngineSite
from k3deploy.phases.last_words import last_words
from k3deploy.phases.on_each import ask_each


@dataclass(frozen=True)
class LaunchPhase:
    site: EngineSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("launch")

    @property
    def title(self) -> str:
        return "Start the engine's containers, rank 0 first"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return tuple(PhaseName(name) for name in ("weights-warm", "image", "reach", "gpus"))

    def targets(self) -> Sequence[Target]:
        return [replica.target for replica in self.site.topology.replicas]

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question, self.site.container_question))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        """The launches (image by digest among them), the weights' commit, and each machine in this life of it."""
        return digest_of(
            launches=[self._record(launch).digest for launch in self._launches(svc, target)],
            commit=self.site.profile.model.revision,
            nodes={str(node): self.site.facts(svc, node).identity.as_dict() for node in target.nodes},
        )

    def probe(self, svc: Services, target: Target) -> tuple[RankSeen, ...]:
        """Raises NodeError where there is no Docker daemon to ask."""
        launches = self._launches(svc, target)
        answers = ask_each(svc, target.nodes, self.site.container_question)
        return tuple(self._seen(target, launch, answers[launch.node]) for launch in launches)

    def plan(self, target: Target, seen: tuple[RankSeen, ...]) -> Plan:
        """Raises EngineError when somebody else's container has our name, or their process one of our ports."""
        check_ours(seen, self.site.run)
        reasons = faults(seen, self.site.run)
        if not reasons:
            return Plan.noop(f"all {len(seen)} ranks run what was rendered for them")
        check_ports(seen)
        return Plan.of(*self._clear(seen, reasons), *self._start(seen))

    def verify(self, svc: Services, target: Target) -> Verdict:
        ranks = self.probe(svc, target)
        reasons = faults(ranks, self.site.run)
        if reasons or not all(rank.seen.is_ours for rank in ranks):
            return self._fault(svc, ranks, "; ".join(reasons) or "a container under our name is not ours")
        containers = {str(rank.launch.node): rank.seen.container for rank in ranks}
        return Verdict.ok(
            f"{len(ranks)} ranks run, as rendered",
            image=ranks[0].launch.image,
            containers={node: found.id for node, found in containers.items() if found},
        )

    def _fault(self, svc: Services, ranks: tuple[RankSeen, ...], what: str) -> Verdict:
        """With the words of the rank that ended first, when one did: it may have lived for a second only."""
        ended = [
            last_words(svc, rank.launch.node, rank.launch.node_rank, rank.seen.container)
            for rank in ranks
            if rank.seen.is_ours and rank.seen.container is not None and rank.seen.container.status == "exited"
        ]
        first = first_failed(ended)
        if first is None:
            return Verdict.bad(
                what,
                why="every rank of a replica has to run, or none of them can serve",
                fix="`k3deploy logs` shows what the engine said last; `k3deploy up` starts the whole replica again",
            )
        why, fix = explain(first)
        return Verdict.bad(
            what,
            why=f"{first.label} ended first: {why}",
            fix=then_again(fix, "`k3deploy up` starts the whole replica again"),
            **{"last lines": last_lines(first)},
        )

    def _launches(self, svc: Services, target: Target) -> tuple[Launch, ...]:
        return self.site.launches(svc, self.site.replica(target))

    def _record(self, launch: Launch) -> LaunchRecord:
        return LaunchRecord.of(launch, self.site.run)

    def _seen(self, target: Target, launch: Launch, answer: Mapping[str, Any]) -> RankSeen:
        seen = NodeSeen.parse(answer)
        if seen.daemon != "running":
            raise NodeError(
                what=f"{launch.node}: there is no Docker daemon to start the engine with",
                why=seen.why,
                fix="look at `systemctl status docker` on the node, then run the same command again",
                context={"node": launch.node, "found": seen.daemon, "wanted": "running"},
            )
        return RankSeen(launch, seen, self.site.ports(self.site.replica(target), launch.node))

    def _starting(self, *launches: Launch) -> StartRanks:
        return StartRanks(launches, self.site.run, self.site.folder, self.site.container_question)

    def _clear(self, ranks: tuple[RankSeen, ...], reasons: tuple[str, ...]) -> tuple[Step, ...]:
        """Stop and remove what is left of an earlier launch: one lost rank takes its whole replica with it."""
        ours = [
            (OurContainer(rank.launch.node, rank.launch.node_rank, rank.seen.container.id), rank.seen.container)
            for rank in ranks
            if rank.seen.container is not None
        ]
        if not ours:
            return ()
        others = f" and {len(reasons) - 2} more" if len(reasons) > 2 else ""
        because = f"{'; '.join(reasons[:2])}{others}: the whole replica starts again"
        running = tuple(container for container, seen in ours if seen.is_running)
        every = tuple(container for container, _ in ours)
        steps = []
        if running:
            steps.append(
                Step(
                    f"stop {_ranks(running)}, rank 0 first ({because})",
                    StopRanks(running, self.site.profile.timeouts.stop_s),
                )
            )
        steps.append(
            Step(
                f"remove the old containers of {_ranks(every)}" + ("" if running else f" ({because})"),
                RemoveContainers(every, self.site.container_question),
            )
        )
        return tuple(steps)

    def _start(self, ranks: tuple[RankSeen, ...]) -> tuple[Step, ...]:
        launches = tuple(rank.launch for rank in ranks)
        head, followers = launches[0], launches[1:]
        folder = self.site.folder
        steps = [
            Step(f"note the launch on {_nodes(launches)}", NoteLaunches(launches, self.site.run, folder)),
        ]
        if head.secret_files:
            steps.append(
                Step(f"make the API key on {head.node}, unless it is there", MakeKey(head.node, folder.api_key))
            )
        steps.append(Step(f"start rank 0 on {head.node}", self._starting(head), detail=_shown(head)))
        if followers:
            steps.append(
                Step(
                    f"start rank{'s' if len(followers) > 1 else ''} "
                    + ", ".join(f"{launch.node_rank} on {launch.node}" for launch in followers),
                    self._starting(*followers),
                    detail="\n".join(_shown(launch) for launch in followers),
                )
            )
        return tuple(steps)


def _ranks(containers: tuple[OurContainer, ...]) -> str:
    return ", ".join(f"rank {container.node_rank} on {container.node}" for container in containers)


def _nodes(launches: tuple[Launch, ...]) -> str:
    return ", ".join(str(launch.node) for launch in launches)


def _shown(launch: Launch) -> str:
    """The command as one could type it. A launch holds no secret."""
    return f"{launch.node}: {shlex.join(launch.argv)}"
