"""Ready: the start is followed to its end by the ranks' logs, then read back as answers of every rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.errors import EngineError
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.launch.base import Launch
from k3deploy.domain.launch.capacity import capacity
from k3deploy.domain.launch.effective import differences
from k3deploy.domain.launch.readiness import (
    EngineSeen,
    GpuMemory,
    counts_for,
    identities,
    not_serving,
    ready_record,
    warnings,
)
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.run import Keys
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.units import duration_text
from k3deploy.phases.engine_actions import OurContainer
from k3deploy.phases.engine_site import EngineSite
from k3deploy.phases.on_each import ask_each
from k3deploy.phases.watch_start import StartWatch, WatchedRank

# The followers' stand-in servers come up before rank 0 is ready; a machine under load may take a moment more.
_ANSWER_WITHIN_S = 60.0
_POLL_S = 1.0


@dataclass(frozen=True)
class ReadySeen:
    """`launch`: the head's, to compare what was asked for with what is used."""

    ranks: tuple[EngineSeen, ...]
    launch: Launch
    rendezvous: tuple[str, int]


@dataclass(frozen=True)
class ReadyPhase:
    site: EngineSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("ready")

    @property
    def title(self) -> str:
        return "Follow the engine's start until every rank is ready"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("launch"),)

    def targets(self) -> Sequence[Target]:
        return [replica.target for replica in self.site.topology.replicas]

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question, self.site.engine_question))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        """The containers in this life of them, and what they must serve."""
        return digest_of(
            containers=identities(look(self.site, svc, target)),
            model=self.site.model_id,
            context=self.site.context_tokens(self.site.replica(target)),
        )

    def probe(self, svc: Services, target: Target) -> ReadySeen:
        replica = self.site.replica(target)
        launch = self.site.launches(svc, replica)[0]
        address = self.site.address(svc, replica.head.node).private_address
        return ReadySeen(look(self.site, svc, target), launch, (address, self.site.profile.network.rendezvous_port))

    def plan(self, target: Target, seen: ReadySeen) -> Plan:
        """Raises EngineError when a rank has no container at all. One that ended has a log, which says why it did."""
        gone = [str(rank.node) for rank in seen.ranks if rank.container is None]
        if gone:
            raise EngineError(
                what=f"{target.name}: there is no engine on {', '.join(gone)}",
                why="its container was removed since it was started",
                fix="`k3deploy up` starts the whole replica again",
                context={"found": "no container", "wanted": "every rank running"},
            )
        if counts_for(seen.ranks[0].ready, identities(seen.ranks)) and not self._wrong(target, seen.ranks):
            return Plan.noop("it is ready, and its containers are those whose start was followed")
        timeouts, measured_s = self.site.profile.timeouts, self.site.profile.expect.start_s
        return Plan.of(
            Step(
                f"follow the logs of {len(seen.ranks)} ranks until the engine is ready",
                BecomeReady(self.site, target, self._watch(target, seen), seen.launch),
                detail=f"at most {duration_text(timeouts.group_s)} to form the process group, "
                f"{duration_text(timeouts.load_s)} to load, {duration_text(timeouts.warmup_s)} to warm up"
                + (f"; where it was measured, {duration_text(measured_s)} in all" if measured_s else ""),
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        ranks = look(self.site, svc, target)
        wrong = self._wrong(target, ranks)
        record = ranks[0].ready
        if not wrong and (record is None or not counts_for(record, identities(ranks))):
            wrong = ("what its log told while it started was not kept",)
        if wrong or record is None:
            return Verdict.bad(
                "; ".join(wrong),
                why="ready means: every rank's container lives and answers, and rank 0 serves the right model",
                fix="`k3deploy logs` shows what the engine says; `k3deploy up` goes on from here",
            )
        memory = self._memory(svc, target)
        told = record["capacity"]
        return Verdict.ok(
            f"{len(ranks)} ranks ready; {record['sentence']}"
            + (f"; {told['max_running_requests']} requests at a time" if told["max_running_requests"] else ""),
            **told,
            context=record["sentence"],
            stages_s=record["stages_s"],
            memory=[each.text for each in memory],
            gpu_used_mib={str(each.node): list(each.used_mib) for each in memory},
            warnings=list(warnings(record, memory)),
        )

    def _wrong(self, target: Target, ranks: tuple[EngineSeen, ...]) -> tuple[str, ...]:
        context = self.site.context_tokens(self.site.replica(target))
        return not_serving(ranks, model_id=self.site.model_id, context_tokens=context)

    def _memory(self, svc: Services, target: Target) -> tuple[GpuMemory, ...]:
        expected = self.site.profile.expect.gpu_used_mib
        return tuple(
            GpuMemory.of(rank.node, rank.node_rank, self.site.facts(svc, rank.node), expected)
            for rank in self.site.replica(target).ranks
        )

    def _watch(self, target: Target, seen: ReadySeen) -> StartWatch:
        ranks = tuple(
            WatchedRank(OurContainer(rank.node, at, rank.container.id), rank.container.started_at)
            for at, rank in enumerate(seen.ranks)
            if rank.container is not None
        )
        artifact = Keys(self.site.run).artifact(f"start/{target.name}.txt")
        return StartWatch(target.name, ranks, self.site.profile.timeouts, seen.rendezvous, artifact)


@dataclass(frozen=True)
class BecomeReady:
    """Follow the start, wait for every rank's answer, and keep what the logs told on the head node."""

    site: EngineSite
    target: Target
    watch: StartWatch
    launch: Launch

    def perform(self, svc: Services, progress: Progress) -> None:
        watched = self.watch.watch(svc, progress)
        ranks = self._answering(svc)
        replica = self.site.replica(self.target)
        head = watched[0].log
        told = capacity(head, decode_context=self.site.pool(replica).replicas.parallel.decode_context)
        progress(told.sentence)
        body = ready_record(watched, identities(ranks), told, differences(self.launch, head.figures))
        write = {"write": {self.site.folder.ready: body}}
        svc.nodes[replica.head.node].call(Program("run_file", write, sudo=True))

    def _answering(self, svc: Services) -> tuple[EngineSeen, ...]:
        """As soon as every rank answers, or as it is when the time is over: verify then says what is missing."""
        deadline = svc.clock.monotonic() + _ANSWER_WITHIN_S
        while True:
            svc.survey.forget(self.target.nodes)
            ranks = look(self.site, svc, self.target)
            if all(rank.health_status == 200 for rank in ranks) or svc.clock.monotonic() > deadline:
                return ranks
            svc.clock.sleep(_POLL_S)


def look(site: EngineSite, svc: Services, target: Target) -> tuple[EngineSeen, ...]:
    """Every rank of a replica as it is now, the head first."""
    answers = ask_each(svc, target.nodes, site.engine_question)
    return tuple(EngineSeen.parse(node, answers[node]) for node in target.nodes)
