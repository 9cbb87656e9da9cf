"""Connect: every node answers over SSH, runs our survey with its own python3, and gives root rights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Target, Verdict
from k3deploy.phases.node_site import NodeSite


@dataclass(frozen=True)
class ConnectPhase:
    """There is nothing to do: the first question opens the connection, and its answer is the proof."""

    site: NodeSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("connect")

    @property
    def title(self) -> str:
        return "Reach the node over SSH"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return ()

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question,))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        """Only how the node is reached: what is behind that name is what this phase finds out."""
        entry = self.site.entry(target.nodes[0])
        return digest_of(address=entry.address, port=entry.port, user=entry.user, jump=entry.jump)

    def probe(self, svc: Services, target: Target) -> NodeFacts:
        return self.site.facts(svc, target.nodes[0])

    def plan(self, target: Target, seen: NodeFacts) -> Plan:
        return Plan.noop(f"connected as {seen.login.name}")

    def verify(self, svc: Services, target: Target) -> Verdict:
        facts = self.site.facts(svc, target.nodes[0])
        login = facts.login.name
        if not facts.is_root:
            return Verdict.bad(
                f"{login} has no root rights",
                why="Docker, its configuration and the data disk belong to root",
                fix=f"give {login} sudo without a password, or log in as root",
            )
        return Verdict.ok(f"connected as {login} to {facts.hostname}", login=login, hostname=facts.hostname)
