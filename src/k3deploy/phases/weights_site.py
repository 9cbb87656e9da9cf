"""What the phases that fetch and prove the weights share: their targets, what is asked of a node, what it answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName
from k3deploy.domain.steps import Target, TargetKind
from k3deploy.domain.weights import Manifest, wanted_repositories
from k3deploy.domain.weights_found import WeightsFound, weights_question
from k3deploy.phases.manifest import need_pinned, pinned
from k3deploy.phases.node_site import NodeSite


@dataclass(frozen=True)
class Held:
    """What one node holds of one repository. `is_draft`: it is the model's draft, not the model."""

    manifest: Manifest
    found: WeightsFound
    is_draft: bool

    def job_name(self, name: str) -> str:
        return job_name(name, is_draft=self.is_draft)


@dataclass(frozen=True)
class WeightsSite(NodeSite):
    """The same run as the weights' phases see it."""

    @property
    def is_shared(self) -> bool:
        """One volume holds the weights for all nodes, so they are fetched and proved once, by the first node."""
        return self.profile.weights.strategy == "shared"

    @property
    def is_swarm(self) -> bool:
        """Nodes give weights to each other; one node alone has nobody to give to."""
        return self.profile.weights.strategy in ("auto", "swarm") and len(self.topology.nodes) > 1

    def is_draft(self, manifest: Manifest) -> bool:
        """Whether it lists the model's draft, not the model."""
        return manifest.repo != self.profile.model.repo

    def targets(self) -> Sequence[Target]:
        """Every node, or all of them as one where they share a volume. The first of a target's nodes does the work."""
        if self.is_shared:
            return [Target(TargetKind.RUN, "run", self.topology.nodes)]
        return super().targets()

    def weights_questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        weights = tuple(weights_question(self.profile, manifest) for manifest in pinned(svc))
        swarm = (self.swarm_question,) if weights and self.is_swarm else ()
        return dict.fromkeys(target.nodes, (self.facts_question, *weights, *swarm))

    @property
    def swarm_question(self) -> Question:
        return Question.of("swarm", folder=self.folder.swarm)

    def weights_inputs(self, svc: Services, target: Target) -> InputsDigest:
        return digest_of(
            identities=[self.identity(svc, node) for node in target.nodes],
            repositories=wanted_repositories(self.profile.model),
            hf_home=self.profile.storage.hf_home,
        )

    def held(self, svc: Services, node: NodeName) -> tuple[Held, ...]:
        """What a node holds of each of the run's repositories, the model's first."""
        return tuple(
            Held(
                manifest,
                WeightsFound.parse(svc.survey.ask(node, weights_question(self.profile, manifest))),
                is_draft=self.is_draft(manifest),
            )
            for manifest in need_pinned(svc)
        )


def job_name(name: str, *, is_draft: bool) -> str:
    """Of a job about one repository: each repository has jobs of its own."""
    return f"{name}-draft" if is_draft else name
