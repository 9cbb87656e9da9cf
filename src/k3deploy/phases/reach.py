"""Reach: every ordered pair of a replica's nodes, on the rendezvous port and three random ones, by private address.

What was dialled is kept in the store. That record counts as long as the machines are the same and it is fresh, or the
engine's own group holds its connections: a run with nothing to do then dials nobody.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.private_link import PrivateLink
from k3deploy.domain.reach import blocked, common_range, dials, random_ports, same_address
from k3deploy.domain.run import Keys
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.units import duration_text
from k3deploy.phases.node_site import NodeSite
from k3deploy.phases.on_each import on_each

CONNECT_S: Final = 2.0
# How long the programs of one replica may take to all be up; connections over slow jump hosts differ by seconds.
GRACE_S: Final = 30.0
PROGRAM_TIMEOUT_S: Final = 60.0
# A firewall is changed by people: after this time a proof without a living engine is made again. It takes a second.
FRESH_S: Final = 900.0
SCHEMA: Final = 1


@dataclass(frozen=True)
class ReachSeen:
    """`is_proven` says that the kept record still counts; `why_not` says why it doesn't."""

    links: Mapping[NodeName, PrivateLink]
    ports: tuple[int, ...]
    digest: InputsDigest
    is_proven: bool
    why_not: str


@dataclass(frozen=True)
class DialAll:
    """One program on each node at the same time; the record is written only when every pair got through."""

    replica: str
    addresses: tuple[tuple[NodeName, str], ...]
    rendezvous_port: int
    ports: tuple[int, ...]
    key: str
    digest: InputsDigest

    def perform(self, svc: Services, progress: Progress) -> None:
        """Raises NodeError that names every pair that did not get through."""
        nodes = [node for node, _ in self.addresses]
        progress(f"dialling {len(nodes) * (len(nodes) - 1)} pairs on ports {', '.join(map(str, self.ports))}")
        rows = on_each(nodes, lambda node: svc.nodes[node].call(self._program(node)), doing="dialling the peers")
        error = blocked(self.replica, dials(rows), dict(self.addresses), self.rendezvous_port)
        if error is not None:
            raise error
        record = {"schema": SCHEMA, "inputs": self.digest, "at": svc.clock.now(), "ports": list(self.ports)}
        svc.store.put(self.key, json.dumps(record, sort_keys=True).encode())

    def _program(self, node: NodeName) -> Program:
        address = dict(self.addresses)[node]
        peers = [
            {"name": str(peer), "address": there, "token": self._token(peer)}
            for peer, there in self.addresses
            if peer != node
        ]
        args = {
            "name": str(node),
            "address": address,
            "token": self._token(node),
            "ports": list(self.ports),
            "peers": peers,
            "connect_s": CONNECT_S,
            "grace_s": GRACE_S,
        }
        return Program("reach", args, timeout_s=PROGRAM_TIMEOUT_S)

    def _token(self, node: NodeName) -> str:
        """Tells that the right machine answered; it guards nothing."""
        return hashlib.sha256(f"{self.digest} {node}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ReachPhase:
    site: NodeSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("reach")

    @property
    def title(self) -> str:
        return "Dial every pair of nodes on the private network"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("facts"),)

    def targets(self) -> Sequence[Target]:
        return [replica.target for replica in self.site.topology.replicas]

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        head, *followers = target.nodes
        asked = dict.fromkeys(followers, (self.site.facts_question, self._connections))
        return {head: (self.site.facts_question,), **asked}

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self._digest(svc, target, self._links(svc, target))

    def probe(self, svc: Services, target: Target) -> ReachSeen:
        links = self._links(svc, target)
        digest = self._digest(svc, target, links)
        ports = (self.site.profile.network.rendezvous_port, *self._random_ports(svc, target))
        if len(target.nodes) == 1:
            return ReachSeen(links, ports, digest, is_proven=True, why_not="")
        why_not = self._why_not(svc, target, links, digest)
        return ReachSeen(links, ports, digest, is_proven=not why_not, why_not=why_not)

    def plan(self, target: Target, seen: ReachSeen) -> Plan:
        """Raises NodeError where two nodes have one address."""
        if len(target.nodes) == 1:
            return Plan.noop("one node, which needs nobody")
        addresses = {node: link.address for node, link in seen.links.items()}
        clash = same_address(addresses)
        if clash is not None:
            raise clash
        if seen.is_proven:
            return Plan.noop("every pair was dialled a moment ago, or its engine is connected")
        pairs = len(target.nodes) * (len(target.nodes) - 1)
        return Plan.of(
            Step(
                f"dial {pairs} pairs of nodes on {len(seen.ports)} ports each ({seen.why_not})",
                DialAll(
                    replica=target.name,
                    addresses=tuple(addresses.items()),
                    rendezvous_port=self.site.profile.network.rendezvous_port,
                    ports=seen.ports,
                    key=self._key(target),
                    digest=seen.digest,
                ),
                detail=f"ports {', '.join(map(str, seen.ports))} between {', '.join(addresses.values())}",
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        seen = self.probe(svc, target)
        if len(target.nodes) == 1:
            return Verdict.ok("one node, which needs nobody")
        if not seen.is_proven:
            return Verdict.bad(seen.why_not, fix="run the same command again: it dials every pair anew")
        pairs = len(target.nodes) * (len(target.nodes) - 1)
        return Verdict.ok(
            f"all {pairs} pairs of nodes reach each other",
            addresses={str(node): link.address for node, link in seen.links.items()},
            ports=list(seen.ports),
        )

    @property
    def _connections(self) -> Question:
        return Question.of("connections", port=self.site.profile.network.rendezvous_port)

    def _key(self, target: Target) -> str:
        return Keys(self.site.run).artifact(f"reach/{target.name}.json")

    def _links(self, svc: Services, target: Target) -> dict[NodeName, PrivateLink]:
        return {node: self.site.link(self.site.facts(svc, node), node) for node in target.nodes}

    def _random_ports(self, svc: Services, target: Target) -> tuple[int, ...]:
        """Another choice for every run and replica, the same one when a run goes on."""
        network = self.site.profile.network
        ranges = [self.site.facts(svc, node).port_range for node in target.nodes]
        return random_ports(
            f"{self.site.run} {target.name}", common_range(ranges), (network.rendezvous_port, network.api_port)
        )

    def _digest(self, svc: Services, target: Target, links: Mapping[NodeName, PrivateLink]) -> InputsDigest:
        return digest_of(
            nodes={str(node): [self.site.identity(svc, node), link.address] for node, link in links.items()},
            port=self.site.profile.network.rendezvous_port,
        )

    def _why_not(
        self, svc: Services, target: Target, links: Mapping[NodeName, PrivateLink], digest: InputsDigest
    ) -> str:
        """Why the kept record does not count (any longer); empty when it does."""
        stored = svc.store.get(self._key(target))
        record: dict[str, Any] = json.loads(stored.data) if stored else {}
        if record.get("schema") != SCHEMA or record.get("inputs") != digest:
            return "not yet dialled between these machines"
        age_s = svc.clock.now() - record["at"]
        if 0 <= age_s <= FRESH_S or self._group_is_connected(svc, target, links):
            return ""
        return f"last dialled {duration_text(max(age_s, 0))} ago, and no engine holds a connection"

    def _group_is_connected(self, svc: Services, target: Target, links: Mapping[NodeName, PrivateLink]) -> bool:
        """Every follower holds a connection to the head's rendezvous port: the engine's process group lives."""
        head, *followers = target.nodes
        answers = {node: svc.survey.ask(node, self._connections) for node in followers}
        return all(
            any(row["remote"] == links[head].address and not row["is_server"] for row in answers[node]["connections"])
            for node in followers
        )
