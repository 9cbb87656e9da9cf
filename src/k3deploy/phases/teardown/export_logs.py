"""Export: what the engine and the jobs printed goes to the store, before anything is removed.

It comes after the engine was stopped, so that its last words are in it: a stopped container keeps its log.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.errors import ProgramFailed
from k3deploy.domain.holdings import Holdings, JobHeld
from k3deploy.domain.launch.record import NodeSeen
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName, RunId
from k3deploy.domain.run import Keys
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.teardown.site import TeardownSite

# A log's start says how the engine came up, its end why it went down; days of access lines lie in between.
HEAD_BYTES: Final = 8 << 20
TAIL_BYTES: Final = 24 << 20
_TIMEOUT_S: Final = 900.0


@dataclass(frozen=True)
class LogsSeen:
    """`has_engine_log`: the store already has the log of this very container."""

    seen: NodeSeen
    held: Holdings
    has_engine_log: bool


@dataclass(frozen=True)
class LogsExportPhase:
    site: TeardownSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("logs-export")

    @property
    def title(self) -> str:
        return "Keep the logs in the store"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("engine-stop"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.container_question, self.site.holdings_question))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self.site.digest

    def probe(self, svc: Services, target: Target) -> LogsSeen:
        node = target.nodes[0]
        seen = self.site.seen(svc, node)
        container = self.site.ours(node, seen)
        stored = container is not None and self._has_log(svc, node, container.id)
        return LogsSeen(seen, self.site.held(svc, node), stored)

    def plan(self, target: Target, seen: LogsSeen) -> Plan:
        node = target.nodes[0]
        container = self.site.ours(node, seen.seen)
        jobs = tuple(job for job in seen.held.jobs if job.state != "absent")
        if container is None and not jobs:
            return Plan.noop("nothing of this run has a log here")
        if seen.has_engine_log:
            return Plan.noop("its log is in the store")
        parts = (["the engine's log"] if container else []) + [f"the log of {job.name}" for job in jobs]
        return Plan.of(
            Step(
                f"send {', '.join(parts)} to the store",
                ExportLogs(node, self.site.run, container.id if container else None, jobs),
                detail=f"packed, at most {(HEAD_BYTES + TAIL_BYTES) >> 20} MiB of each before packing",
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        """A log that Docker cannot give out is told, and keeps nobody's machines running."""
        node = target.nodes[0]
        keys = svc.store.list(log_folder(self.site.run, node))
        names = [key.rsplit("/", 1)[-1] for key in keys]
        container = self.site.ours(node, self.site.seen(svc, node))
        if container is not None and not self._has_log(svc, node, container.id):
            return Verdict.ok(f"the engine's log could not be read; {len(names)} other logs kept", logs=names)
        return Verdict.ok(f"{len(names)} logs in the store" if names else "there was no log to keep", logs=names)

    def _has_log(self, svc: Services, node: NodeName, container_id: str) -> bool:
        return svc.store.get(engine_log_key(self.site.run, node, container_id)) is not None


def log_folder(run: RunId, node: NodeName) -> str:
    """Prefix of a node's logs in the store."""
    return Keys(run).artifact(f"logs/{node}/")


def engine_log_key(run: RunId, node: NodeName, container_id: str) -> str:
    return f"{log_folder(run, node)}engine-{container_id[:12]}.log.gz"


@dataclass(frozen=True)
class ExportLogs:
    node: NodeName
    run: RunId
    container_id: str | None
    jobs: tuple[JobHeld, ...]

    def perform(self, svc: Services, progress: Progress) -> None:
        args = {
            "container": self.container_id,
            "jobs": {job.name: job.folder for job in self.jobs},
            "head_bytes": HEAD_BYTES,
            "tail_bytes": TAIL_BYTES,
        }
        program = Program("logs_export", args, sudo=True, timeout_s=_TIMEOUT_S)
        packed: dict[str, bytearray] = {}
        result: Mapping[str, Any] = {}
        try:
            for item in svc.nodes[self.node].follow(program):
                if "result" in item:
                    result = item["result"]
                else:
                    said = item["progress"]
                    packed.setdefault(said["name"], bytearray()).extend(base64.b64decode(said["chunk"]))
        except ProgramFailed as error:
            progress(f"the logs could not be read: {error.what}")
            return
        # The engine's comes last: where it is in the store, the others are.
        for name in sorted(packed, key=lambda name: (name == "engine", name)):
            svc.store.put(self._key(name), bytes(packed[name]))
        for name, why in dict(result.get("missing", {})).items():
            progress(f"the log of {name} could not be read: {why}")

    def _key(self, name: str) -> str:
        if name == "engine" and self.container_id is not None:
            return engine_log_key(self.run, self.node, self.container_id)
        return f"{log_folder(self.run, self.node)}{name}.log.gz"
