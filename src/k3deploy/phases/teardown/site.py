"""What the phases of a teardown share: the run, what was asked for, and what is looked at on a node."""

from dataclasses import dataclass, field

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.holdings import Holdings, TeardownOptions, holdings_question
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.launch.record import NodeSeen
from k3deploy.domain.names import InputsDigest, NodeName
from k3deploy.phases.engine_actions import OurContainer
from k3deploy.phases.engine_site import EngineSite


@dataclass(frozen=True)
class TeardownSite(EngineSite):
    options: TeardownOptions = field(default_factory=TeardownOptions)

    @property
    def holdings_question(self) -> Question:
        return holdings_question(self.profile, self.run)

    def seen(self, svc: Services, node: NodeName) -> NodeSeen:
        return NodeSeen.parse(svc.survey.ask(node, self.container_question))

    def held(self, svc: Services, node: NodeName) -> Holdings:
        return Holdings.parse(svc.survey.ask(node, self.holdings_question))

    def ours(self, node: NodeName, seen: NodeSeen) -> OurContainer | None:
        """The container, when it is provably this run's."""
        if seen.container is None or not seen.is_ours:
            return None
        rank = self.topology.replica_of(node).rank_of(node)
        return OurContainer(node, int(rank.node_rank), seen.container.id)

    @property
    def digest(self) -> InputsDigest:
        """Nothing but the run: what a teardown leaves behind is read back from the nodes each time."""
        return digest_of(run=str(self.run))
