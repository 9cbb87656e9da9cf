"""Client: huggingface_hub on the node, in a folder of its own, from wheels that the operator's machine fetched by hash.

No pip, no venv and no route to an index is needed there; the system's Python packages are not touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.contracts import Progress, Services, Wheelhouse
from k3deploy.domain.client_lock import ARCHITECTURES
from k3deploy.domain.command import Program, Question
from k3deploy.domain.errors import NodeError
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.units import bytes_text
from k3deploy.phases.node_site import NodeSite

UNPACK_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True)
class ClientSeen:
    node: NodeName
    architecture: str
    is_whole: bool
    why: str


@dataclass(frozen=True)
class SendClient:
    """Send the wheels as one file, and unpack them there with every hash checked."""

    node: NodeName
    architecture: str
    folder: str
    wheelhouse: Wheelhouse

    def perform(self, svc: Services, progress: Progress) -> None:
        pack = self.wheelhouse.pack(self.architecture)
        size_bytes = pack.path.stat().st_size
        progress(f"sending {len(pack.wheels)} wheels, {bytes_text(size_bytes)}")
        sent = f"{self.folder}.zip"
        svc.nodes[self.node].put(pack.path, sent, mode=0o600)
        args = {"pack": sent, "wheels": dict(pack.wheels), "folder": self.folder, "lock": self.wheelhouse.lock.id}
        svc.nodes[self.node].call(Program("client_unpack", args, timeout_s=UNPACK_TIMEOUT_S))


@dataclass(frozen=True)
class ClientPhase:
    site: NodeSite
    wheelhouse: Wheelhouse

    @property
    def name(self) -> PhaseName:
        return PhaseName("client")

    @property
    def title(self) -> str:
        return "Carry the Hub client to the node"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("storage"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question, self._question))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return digest_of(identity=self.site.identity(svc, target.nodes[0]), lock=self.wheelhouse.lock.id)

    def probe(self, svc: Services, target: Target) -> ClientSeen:
        node = target.nodes[0]
        answer = self._answer(svc, node)
        return ClientSeen(node, self.site.facts(svc, node).architecture, answer["is_whole"], answer["why"])

    def plan(self, target: Target, seen: ClientSeen) -> Plan:
        """Raises NodeError for an architecture that the client has no wheels for."""
        lock = self.wheelhouse.lock
        if seen.architecture not in ARCHITECTURES:
            raise NodeError(
                what=f"{seen.node}: no Hub client for {seen.architecture}",
                why="its transfer library (hf-xet) is built for two architectures",
                fix="take a node of one of these architectures",
                context={"node": seen.node, "found": seen.architecture, "wanted": " or ".join(ARCHITECTURES)},
            )
        if seen.is_whole:
            return Plan.noop(f"huggingface_hub {lock.client_version} is there")
        folder = self.site.folder.client(lock.id)
        return Plan.of(
            Step(
                f"send huggingface_hub {lock.client_version}",
                SendClient(seen.node, seen.architecture, folder, self.wheelhouse),
                detail=f"{len(lock.packages)} wheels for {seen.architecture} to {folder} ({seen.why})",
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        lock = self.wheelhouse.lock
        answer = self._answer(svc, target.nodes[0])
        if not answer["is_whole"]:
            return Verdict.bad(
                f"the Hub client is not whole: {answer['why']}",
                fix="run the same command again: it is sent anew",
                path=self.site.folder.client(lock.id),
            )
        return Verdict.ok(f"huggingface_hub {lock.client_version}", lock=lock.id)

    @property
    def _question(self) -> Question:
        lock = self.wheelhouse.lock
        return Question.of("client", folder=self.site.folder.client(lock.id), lock=lock.id)

    def _answer(self, svc: Services, node: NodeName) -> Mapping[str, Any]:
        return svc.survey.ask(node, self._question)
