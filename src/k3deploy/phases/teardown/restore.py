"""Restore (only when asked for): the node's storage as it was before the run: daemon.json, Docker's place, folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.holdings import Holdings
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName, RunId
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.teardown.site import TeardownSite

# Stopping Docker, starting it and waiting for its answer, and the same once more to go back.
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class RestoreStorage:
    node: NodeName
    folder: str
    run: RunId
    images: tuple[str, ...]

    def perform(self, svc: Services, progress: Progress) -> None:
        args = {"run_dir": self.folder, "run_id": str(self.run), "images": list(self.images)}
        done = svc.nodes[self.node].call(Program("storage_restore", args, sudo=True, timeout_s=_TIMEOUT_S))
        for kept in done["kept"]:
            progress(f"{kept['path']} stays: {kept['why']}")


@dataclass(frozen=True)
class RestoreSeen:
    held: Holdings
    images: tuple[str, ...]


@dataclass(frozen=True)
class StorageRestorePhase:
    site: TeardownSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("storage-restore")

    @property
    def title(self) -> str:
        return "Put the node's storage back as it was"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        purge = ("weights-purge",) if self.site.options.purges_weights else ()
        return tuple(PhaseName(name) for name in ("engine-remove", *purge))

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.holdings_question,))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self.site.digest

    def probe(self, svc: Services, target: Target) -> RestoreSeen:
        """The run's image was pulled by the run, so Docker's folder may go when nothing else is in it."""
        pin = self.site.image_pin(svc)
        return RestoreSeen(self.site.held(svc, target.nodes[0]), (pin.reference,) if pin else ())

    def plan(self, target: Target, seen: RestoreSeen) -> Plan:
        if not seen.held.can_restore:
            return Plan.noop("this run noted no change of the node's storage")
        undo = [entry.undo for entry in reversed(seen.held.journal)]
        action = RestoreStorage(target.nodes[0], self.site.folder.path, self.site.run, seen.images)
        return Plan.of(Step("put the node's storage back as it was", action, detail="\n".join(undo)))

    def verify(self, svc: Services, target: Target) -> Verdict:
        held = self.site.held(svc, target.nodes[0])
        if held.can_restore:
            left = "the run's folder" if held.exists else "the kept daemon.json"
            return Verdict.bad(f"{left} is still there", fix="run the same command again")
        return Verdict.ok("the storage is as it was before the run")
