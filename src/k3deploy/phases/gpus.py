"""GPUs: as many as the profile counts on, with enough memory, free, and within Docker's reach. Only looks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.docker_facts import DockerFound, docker_question
from k3deploy.domain.findings import Finding, raise_errors, verdict
from k3deploy.domain.gpu_check import findings
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.launch.record import NodeSeen
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Target, Verdict
from k3deploy.phases.engine_site import EngineSite


@dataclass(frozen=True)
class GpusPhase:
    """Apart from preflight, so that weights can be staged on nodes whose GPUs are not rented yet."""

    site: EngineSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("gpus")

    @property
    def title(self) -> str:
        return "Check the GPUs"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("facts"),)

    def targets(self) -> Sequence[Target]:
        return [Target.node(node) for node in self.site.topology.nodes]

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        asked = (self.site.facts_question, docker_question(), self.site.container_question)
        return dict.fromkeys(target.nodes, asked)

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return digest_of(
            identity=self.site.facts(svc, target.nodes[0]).identity.as_dict(),
            hardware=self.site.profile.hardware.model_dump(mode="json"),
        )

    def probe(self, svc: Services, target: Target) -> tuple[Finding, ...]:
        node = target.nodes[0]
        docker = DockerFound.parse(svc.survey.ask(node, docker_question()))
        engine = NodeSeen.parse(svc.survey.ask(node, self.site.container_question))
        ours = engine.container if engine.is_ours else None
        return findings(
            self.site.facts(svc, node),
            docker,
            self.site.profile.hardware,
            ours.id if ours is not None and ours.is_running else None,
        )

    def plan(self, target: Target, seen: tuple[Finding, ...]) -> Plan:
        """Raises NodeError for what is wrong with them, or PhaseFailed where that is several things."""
        raise_errors(target.nodes[0], seen)
        return Plan.noop("looked, and they are as the profile wants them")

    def verify(self, svc: Services, target: Target) -> Verdict:
        facts = self.site.facts(svc, target.nodes[0])
        gpus = facts.gpus or ()
        kinds = ", ".join(sorted({f"{each.name}, {each.memory_total_mib} MiB" for each in gpus}))
        drivers = sorted({each.driver for each in gpus})
        return verdict(
            f"{len(gpus)} x {kinds}" if gpus else "no GPU",
            self.probe(svc, target),
            gpus=[each.uuid for each in gpus],
            driver=", ".join(drivers),
        )
