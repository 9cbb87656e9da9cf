"""What the phases that prepare one node share: the run's inputs, and how facts, Docker and the image are asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.docker_facts import DockerFound, ImageFound, docker_question, image_question
from k3deploy.domain.facts import NodeFacts, NodeIdentity, facts_question
from k3deploy.domain.image_ref import IMAGE_PIN, ImagePin, wanted_image
from k3deploy.domain.names import NodeName, RunId
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.private_link import PrivateLink, private_link
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.run_folder import RunFolder
from k3deploy.domain.steps import Target
from k3deploy.domain.storage_facts import StorageAnswer, storage_question
from k3deploy.domain.topology import Topology


@dataclass(frozen=True)
class NodeSite:
    profile: Profile
    topology: Topology
    nodes_file: NodesFile
    run: RunId

    def targets(self) -> Sequence[Target]:
        """Every node that has a place in a replica."""
        return [Target.node(node) for node in self.topology.nodes]

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.profile.storage.mount, self.run)

    def entry(self, node: NodeName) -> NodeEntry:
        return self.nodes_file.entry(node)

    @property
    def facts_question(self) -> Question:
        return facts_question(self.profile)

    def facts(self, svc: Services, node: NodeName) -> NodeFacts:
        return NodeFacts.parse(svc.survey.ask(node, self.facts_question))

    def identity(self, svc: Services, node: NodeName) -> Mapping[str, str | None]:
        return self._identity(svc, node).as_dict()

    def _identity(self, svc: Services, node: NodeName) -> NodeIdentity:
        return self.facts(svc, node).identity

    def link(self, facts: NodeFacts, node: NodeName) -> PrivateLink:
        """Raises NodeError where the node has no private address, or several."""
        wanted = self.entry(node).private_address
        return private_link(facts, node=node, subnet=self.profile.network.private_subnet, wanted=wanted)

    def docker(self, svc: Services, node: NodeName) -> DockerFound:
        return DockerFound.parse(svc.survey.ask(node, docker_question()))

    @property
    def storage_question(self) -> Question:
        return storage_question(self.profile, self.run)

    def storage(self, svc: Services, node: NodeName) -> StorageAnswer:
        return StorageAnswer.parse(svc.survey.ask(node, self.storage_question))

    def image_pin(self, svc: Services) -> ImagePin | None:
        """The image that this run settled on; None before the first node has resolved it."""
        pinned = svc.pins.get(IMAGE_PIN)
        return ImagePin.from_dict(pinned) if pinned else None

    def image_question(self, svc: Services) -> Question:
        pin = self.image_pin(svc)
        return image_question(pin.reference if pin else wanted_image(self.profile.engine).text)

    def image(self, svc: Services, node: NodeName) -> ImageFound | None:
        return ImageFound.parse(svc.survey.ask(node, self.image_question(svc)))
