"""Preflight: everything that can be known before the first byte is downloaded, without GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.docker_facts import docker_question
from k3deploy.domain.findings import Finding, errors_of, raise_errors, verdict
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.page_cache import CacheChoice
from k3deploy.domain.preflight import findings
from k3deploy.domain.steps import Plan, Target, Verdict
from k3deploy.phases.node_site import NodeSite


@dataclass(frozen=True)
class Looked:
    """`choice`: what will become of the node's memory, known before there is anything to put there."""

    findings: tuple[Finding, ...]
    choice: CacheChoice


@dataclass(frozen=True)
class PreflightPhase:
    site: NodeSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("preflight")

    @property
    def title(self) -> str:
        return "Check disk, Docker and Python"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("facts"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question, docker_question(), self.site.image_question(svc)))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        profile = self.site.profile
        return digest_of(
            identity=self.site.identity(svc, target.nodes[0]),
            storage=profile.storage.model_dump(mode="json"),
            weights=[profile.model.repo, profile.model.revision, profile.model.shard_bytes],
            image=profile.engine.image,
            architecture=profile.hardware.cpu_architecture,
        )

    def probe(self, svc: Services, target: Target) -> Looked:
        node, profile = target.nodes[0], self.site.profile
        facts, image = self.site.facts(svc, node), self.site.image(svc, node)
        found = findings(facts, self.site.docker(svc, node), image, profile, svc.clock.now())
        return Looked(found, CacheChoice.of(facts, profile))

    def plan(self, target: Target, seen: Looked) -> Plan:
        """Raises NodeError for what is in the way, or PhaseFailed where that is several things."""
        raise_errors(target.nodes[0], seen.findings)
        count = len(seen.findings)
        words = f", with {count} warning{'s' if count > 1 else ''}" if count else ""
        return Plan.noop(f"looked, and nothing is in the way{words}; the weights: {seen.choice.sentence}")

    def verify(self, svc: Services, target: Target) -> Verdict:
        found = self.probe(svc, target).findings
        storage = self.site.facts(svc, target.nodes[0]).storage
        summary = "nothing is in the way"
        if storage is not None and not errors_of(found):
            summary = f"{storage.path} on {storage.source} ({storage.fs_type}), nothing is in the way"
        return verdict(summary, found)
