"""Facts: which machine this is, and by which private address its siblings reach it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.findings import Finding, raise_errors, verdict
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Target, Verdict
from k3deploy.phases.node_site import NodeSite


@dataclass(frozen=True)
class FactsPhase:
    site: NodeSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("facts")

    @property
    def title(self) -> str:
        return "Learn what machine it is"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("connect"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question,))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        node = target.nodes[0]
        return digest_of(
            identity=self.site.identity(svc, node),
            subnet=self.site.profile.network.private_subnet,
            private_address=self.site.entry(node).private_address,
        )

    def probe(self, svc: Services, target: Target) -> NodeFacts:
        return self.site.facts(svc, target.nodes[0])

    def plan(self, target: Target, seen: NodeFacts) -> Plan:
        """Raises NodeError for a machine without an identity, or without exactly one private address."""
        node = target.nodes[0]
        raise_errors(node, identity_findings(seen))
        link = self.site.link(seen, node)
        return Plan.noop(f"{seen.os_title or seen.kernel}, {link.address} on {link.interface}")

    def verify(self, svc: Services, target: Target) -> Verdict:
        """Raises NodeError as `plan`."""
        node = target.nodes[0]
        facts = self.site.facts(svc, node)
        link = self.site.link(facts, node)
        gpus = f"{len(facts.gpus)} GPUs" if facts.gpus else "no GPU"
        return verdict(
            f"{facts.os_title or 'unknown system'} on {facts.architecture}, {gpus}, {link.address} on {link.interface}",
            identity_findings(facts),
            identity=facts.identity.as_dict(),
            private_address=link.address,
            private_interface=link.interface,
            hcas=list(facts.active_hcas),
            architecture=facts.architecture,
            os=facts.os_title,
            kernel=facts.kernel,
            missing=dict(facts.reasons),
        )


def identity_findings(facts: NodeFacts) -> tuple[Finding, ...]:
    """A machine that can't be told from another one can't be resumed on. A missing disk is preflight's to report."""
    found = []
    for name, value in (("machine_id", facts.identity.machine_id), ("boot_id", facts.identity.boot_id)):
        if value is None:
            found.append(
                Finding(
                    f"its {name.replace('_', '-')} cannot be read",
                    why=f"{facts.why(name)}; without it a replaced machine would pass for the old one",
                    fix="`sudo systemd-machine-id-setup` on the node writes /etc/machine-id"
                    if name == "machine_id"
                    else "mount /proc on the node as usual",
                )
            )
    return tuple(found)
