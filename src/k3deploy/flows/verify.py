"""`verify-shards`: prove the weights on all nodes at once, and tell every fault. Changes nothing but what is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from k3deploy.contracts import Progress
from k3deploy.domain import events as ev
from k3deploy.domain.command import Program
from k3deploy.domain.errors import Interrupted, K3Error
from k3deploy.domain.names import NodeName
from k3deploy.domain.run_folder import RunFolder
from k3deploy.domain.shard_report import NodeReport, ShardReport
from k3deploy.domain.weights import Manifest, check_manifests, wanted_repositories
from k3deploy.domain.weights_found import weights_question
from k3deploy.flows.session import Session
from k3deploy.phases.detached import follow_job
from k3deploy.phases.manifest import pinned, require
from k3deploy.phases.on_each import try_each
from k3deploy.phases.weights_verify import proof_job

PHASE: Final = "verify-shards"
# Headers of 96 shards are a few megabytes; a disk that takes longer is not fit for the launch anyway.
QUICK_TIMEOUT_S: Final = 300.0
CLEAR_TIMEOUT_S: Final = 60.0


def verify_shards(session: Session, *, is_full: bool, has_run: bool = True) -> ShardReport:
    """Look at every node of the session. A node that cannot be looked at is in the report, not raised.

    Without a live run nobody would ever remove what the job leaves on the nodes, so it is removed here.

    Raises HubError or ProfileError when there is no list of files to compare with, Interrupted after a Ctrl-C.
    """
    manifest = _manifest(session)
    found, failed = try_each(session.nodes, lambda node: _Look(session, node, manifest).report(is_full=is_full))
    for error in failed.values():
        if isinstance(error, Interrupted):
            raise error
    if is_full and not has_run:
        try_each(list(found), lambda node: _clear(session, node))
    reports = [found.get(node) or NodeReport(node, error=failed[node]) for node in session.nodes]
    return ShardReport(session.profile.name, manifest, is_full, tuple(reports))


def _clear(session: Session, node: NodeName) -> None:
    folder = RunFolder(session.profile.storage.mount, session.record.run_id)
    session.svc.nodes[node].call(Program("run_clear", {"folder": folder.path}, sudo=True, timeout_s=CLEAR_TIMEOUT_S))


def _manifest(session: Session) -> Manifest:
    """The run's own list, else the Hub's at the profile's commit."""
    model = session.profile.model
    manifests = pinned(session.svc)
    if manifests:
        require(manifests, model)
        return manifests[0]
    manifests = tuple(session.svc.hub.manifest(*each) for each in wanted_repositories(model))
    check_manifests(manifests, model)
    return manifests[0]


@dataclass(frozen=True)
class _Look:
    """One node, with its progress on the console."""

    session: Session
    node: NodeName
    manifest: Manifest

    def report(self, *, is_full: bool) -> NodeReport:
        clock = self.session.svc.clock
        started = clock.monotonic()
        step = "hash every byte" if is_full else "look at sizes and headers"
        emit, target = self.session.sink.emit, str(self.node)
        emit(ev.PhaseStarted(at=clock.now(), phase=PHASE, target=target, title="Prove the weights"))
        emit(ev.StepStarted(at=clock.now(), phase=PHASE, target=target, step=step))
        try:
            report = self._full() if is_full else self._quick()
        except K3Error as error:
            lasted_s = clock.monotonic() - started
            emit(
                ev.TargetFailed(at=clock.now(), phase=PHASE, target=target, error=error.as_dict(), duration_s=lasted_s)
            )
            raise
        lasted_s = clock.monotonic() - started
        emit(ev.StepFinished(at=clock.now(), phase=PHASE, target=target, step=step, duration_s=lasted_s))
        return report

    def _quick(self) -> NodeReport:
        args = {**self._args, "level": "quick"}
        result = self.session.svc.nodes[self.node].call(Program("hashing", args, sudo=True, timeout_s=QUICK_TIMEOUT_S))
        return NodeReport.parse(self.node, result, self.manifest)

    def _full(self) -> NodeReport:
        svc, storage = self.session.svc, self.session.profile.storage
        seen = svc.survey.ask(self.node, weights_question(self.session.profile, self.manifest))
        if len(seen["missing"]) == seen["files"]:
            return self._quick()  # nothing to hash, and perhaps no disk to keep a job's folder on
        folder = RunFolder(storage.mount, self.session.record.run_id)
        job = proof_job(
            self.manifest,
            self.node,
            str(self.session.record.run_id),
            folder.jobs,
            storage.hf_home,
            level="full",
            name=PHASE,
        )
        return NodeReport.parse(self.node, follow_job(svc, job, self._progress), self.manifest)

    @property
    def _args(self) -> dict[str, object]:
        return {"hf_home": self.session.profile.storage.hf_home, "manifest": self.manifest.as_dict()}

    @property
    def _progress(self) -> Progress:
        def tell(
            message: str,
            *,
            done: float | None = None,
            total: float | None = None,
            numbers: Mapping[str, float] | None = None,
        ) -> None:
            at, target = self.session.svc.clock.now(), str(self.node)
            self.session.sink.emit(
                ev.Progressed(
                    at=at,
                    phase=PHASE,
                    target=target,
                    message=message,
                    done=done,
                    total=total,
                    numbers=dict(numbers or {}),
                )
            )

        return tell
