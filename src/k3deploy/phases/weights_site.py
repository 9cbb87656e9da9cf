"""What the phases that fetch and prove the weights share: what is asked of a node, and what makes an answer stale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName
from k3deploy.domain.steps import Target
from k3deploy.domain.weights_found import WeightsFound, weights_question
from k3deploy.phases.manifest import need_pinned, pinned
from k3deploy.phases.node_site import NodeSite


@dataclass(frozen=True)
class WeightsSite(NodeSite):
    """The same run as the weights' phases see it."""

    def weights_questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        manifest = pinned(svc)
        weights = () if manifest is None else (weights_question(self.profile, manifest),)
        return dict.fromkeys(target.nodes, (self.facts_question, *weights))

    def weights_inputs(self, svc: Services, target: Target) -> InputsDigest:
        return digest_of(
            identity=self.identity(svc, target.nodes[0]),
            repo=self.profile.model.repo,
            revision=self.profile.model.revision,
            hf_home=self.profile.storage.hf_home,
        )

    def weights(self, svc: Services, node: NodeName) -> WeightsFound:
        """What a node holds of the run's weights."""
        return WeightsFound.parse(svc.survey.ask(node, weights_question(self.profile, need_pinned(svc))))
