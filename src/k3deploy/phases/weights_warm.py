"""Weights-warm: what fits into a node's memory is there before the engine starts; the rest is left to the disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import NodeTimeout
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.launch.record import NodeSeen
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.page_cache import CacheChoice
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.units import bytes_text, part_text
from k3deploy.domain.weights import wanted_repositories
from k3deploy.phases.detached import DetachedJob, follow_job
from k3deploy.phases.engine_site import EngineSite
from k3deploy.phases.manifest import pinned

# A disk of 2.6 GB/s gives 1.56 TB in this time. A slower one is what the engine will wait for in any case: it starts,
# and the reading goes on ahead of it.
WAIT_S: Final = 600.0
SILENT_S: Final = 300.0
# The look takes samples: a file's end that was pushed out meanwhile is not worth a job.
ENOUGH: Final = 0.99


@dataclass(frozen=True)
class WarmSeen:
    """`cached_bytes` of `files_bytes` are in memory, by samples."""

    choice: CacheChoice
    files_bytes: int
    cached_bytes: int
    is_engine_running: bool
    is_reading: bool

    @property
    def share(self) -> float:
        return self.cached_bytes / self.files_bytes

    @property
    def nothing_to_do(self) -> str:
        """Why nothing is to be read; "" where something is."""
        if self.is_engine_running:
            return "the engine runs already, and has its weights"
        if self.files_bytes == 0:
            return "there are no weights yet"
        if not self.choice.keeps:
            return self.choice.sentence
        if self.share >= ENOUGH:
            return f"all of it is in memory; {self.choice.sentence}"
        return ""


@dataclass(frozen=True)
class WarmWeights:
    """Read them as a detached job, and follow it for a while."""

    node: NodeName
    run: str
    folder: str
    args: Mapping[str, Any]

    def perform(self, svc: Services, progress: Progress) -> None:
        job = DetachedJob(
            node=self.node,
            id=f"{self.run}-weights-warm",
            folder=self.folder,
            entry="weights_warm",
            args=self.args,
            silent_s=SILENT_S,
            timeout_s=WAIT_S,
            user="root",  # the kernel tells nobody else what is in memory
        )
        try:
            follow_job(svc, job, progress)
        except NodeTimeout:
            progress("this disk is slow: the rest is read while the engine starts")


@dataclass(frozen=True)
class WeightsWarmPhase:
    site: EngineSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("weights-warm")

    @property
    def title(self) -> str:
        return "Have the weights in memory, where they fit"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("weights-verify"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        weights = (self._cache_question, self._job_question) if pinned(svc) else ()
        return dict.fromkeys(target.nodes, (self.site.facts_question, self.site.container_question, *weights))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        """Memory is lost with a reboot, of which the identity tells. Read once in a machine's life, not at each run."""
        return digest_of(
            identity=self.site.identity(svc, target.nodes[0]),
            repositories=wanted_repositories(self.site.profile.model),
            hf_home=self.site.profile.storage.hf_home,
        )

    def probe(self, svc: Services, target: Target) -> WarmSeen:
        node = target.nodes[0]
        cache = svc.survey.ask(node, self._cache_question)
        container = NodeSeen.parse(svc.survey.ask(node, self.site.container_question))
        return WarmSeen(
            choice=CacheChoice.of(self.site.facts(svc, node), self.site.profile),
            files_bytes=cache["bytes"],
            cached_bytes=cache["cached_bytes"],
            is_engine_running=container.is_ours and container.container is not None and container.container.is_running,
            is_reading=svc.survey.ask(node, self._job_question)["state"] == "running",
        )

    def plan(self, target: Target, seen: WarmSeen) -> Plan:
        if seen.nothing_to_do:
            return Plan.noop(seen.nothing_to_do)
        return Plan.of(
            Step(
                f"read about {part_text(seen.files_bytes - seen.cached_bytes, seen.files_bytes)} into memory",
                WarmWeights(target.nodes[0], str(self.site.run), self._folder, self._args),
                detail=seen.choice.sentence,
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        """Good in any case: an engine whose weights are on the disk alone starts too, only later."""
        seen = self.probe(svc, target)
        found = {"cached_bytes": seen.cached_bytes, "bytes": seen.files_bytes, "keeps": seen.choice.keeps}
        if seen.nothing_to_do:
            return Verdict.ok(seen.nothing_to_do, **found)
        summary = f"{100 * seen.share:.0f} % of {bytes_text(seen.files_bytes)} in memory"
        if seen.is_reading:
            return Verdict.ok(f"{summary}, the rest is being read", **found)
        return Verdict.ok(summary, **found, warnings=["memory was given to something else: the engine reads the rest"])

    @property
    def _folder(self) -> str:
        return f"{self.site.folder.jobs}/weights-warm"

    @property
    def _args(self) -> Mapping[str, Any]:
        repositories = [list(each) for each in wanted_repositories(self.site.profile.model)]
        return {"hf_home": self.site.profile.storage.hf_home, "repositories": repositories}

    @property
    def _cache_question(self) -> Question:
        return Question.of("page_cache", **self._args)

    @property
    def _job_question(self) -> Question:
        return Question.of("job", dir=self._folder)
