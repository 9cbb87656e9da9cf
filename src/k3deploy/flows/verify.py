"""`verify-shards`: prove the weights on all nodes at once and tell every fault; with a repair, fetch what is bad."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from k3deploy.contracts import Progress
from k3deploy.domain.command import Program
from k3deploy.domain.errors import Interrupted, UsageError
from k3deploy.domain.names import NodeName
from k3deploy.domain.proof_level import ProofLevel
from k3deploy.domain.repository_report import RepositoryReport
from k3deploy.domain.shard_report import NodeReport, ShardReport
from k3deploy.domain.weights import Manifest, check_manifests, wanted_repositories
from k3deploy.domain.weights_found import weights_question
from k3deploy.flows.session import Session, raise_for, run_phases
from k3deploy.phases.detached import follow_job
from k3deploy.phases.manifest import pinned, require
from k3deploy.phases.on_each import try_each
from k3deploy.phases.weights_site import WeightsSite, job_name
from k3deploy.phases.weights_verify import proof_job
from k3deploy.runner.graph import AnyPhase, closure
from k3deploy.runner.told import told

PHASE: Final = "verify-shards"
# Headers of 96 shards are 80 MB, the index 60 MB; a disk that takes longer is not fit for the launch anyway.
QUICK_TIMEOUT_S: Final = 300.0
CLEAR_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Look:
    """`nodes`: those to look at. `again`: the command that mends what is found. `has_run`: a live run knows them."""

    level: ProofLevel
    nodes: tuple[NodeName, ...]
    again: str
    has_run: bool = True


def chosen(session: Session, names: Sequence[str]) -> tuple[NodeName, ...]:
    """The session's nodes, or those of these names. Raises UsageError for a name that none has."""
    unknown = [name for name in names if name not in session.nodes]
    if unknown:
        raise UsageError(
            what=f"no node is called {unknown[0]!r}",
            fix=f"use one of: {', '.join(session.nodes)}",
            context={"found": unknown[0]},
        )
    return tuple(node for node in session.nodes if not names or node in names)


def verify_shards(session: Session, look: Look) -> ShardReport:
    """Look at the nodes. One that cannot be looked at is in the report, not raised.

    Without a live run nobody would ever remove what the job leaves on the nodes, so it is removed here.

    Raises HubError or ProfileError when there is no list of files to compare with, Interrupted after a Ctrl-C.
    """
    manifests, source = _manifests(session)
    reports: dict[NodeName, NodeReport] = {}
    for nodes, level in _waves(session, look):
        found, failed = try_each(nodes, partial(_look, session, manifests, level))
        for error in failed.values():
            if isinstance(error, Interrupted):
                raise error
        reports |= {node: NodeReport(node, parts) for node, parts in found.items()}
        reports |= {node: NodeReport(node, error=error) for node, error in failed.items()}
        if look.level is not ProofLevel.QUICK and not look.has_run:
            try_each(list(found), lambda node: _clear(session, node))
    return ShardReport(manifests, source, tuple(reports[node] for node in look.nodes), look.again)


def repair_shards(session: Session, look: Look, report: ShardReport, phases: Sequence[AnyPhase]) -> ShardReport:
    """Fetch again only what is bad, as `up` would: moved aside first, from a peer before the Hub. Then look again.

    `phases`: those of `up`. Raises PhaseFailed when that did not go through.
    """
    needed = closure(phases, "weights-verify")
    outcome = run_phases(session, needed, flow=f"{PHASE} --repair", nodes=report.needs_repair)
    raise_for(outcome.result, again=look.again)
    mended = verify_shards(session, replace(look, level=ProofLevel.KNOWN))
    return replace(mended, repaired=report.to_repair)


def _waves(session: Session, look: Look) -> Iterator[tuple[Sequence[NodeName], ProofLevel]]:
    """All at once; on a shared volume the first node alone, whose stamps then spare the others the same bytes."""
    if look.level is ProofLevel.QUICK or not session.site(WeightsSite).is_shared:
        yield look.nodes, look.level
    else:
        yield look.nodes[:1], look.level
        yield look.nodes[1:], ProofLevel.KNOWN


def _manifests(session: Session) -> tuple[tuple[Manifest, ...], str]:
    """The run's own lists, else the Hub's at the profile's commits."""
    model = session.profile.model
    manifests = pinned(session.svc)
    if manifests:
        require(manifests, model)
        return manifests, f"settled by run {session.record.run_id}"
    manifests = tuple(session.svc.hub.manifest(*each) for each in wanted_repositories(model))
    check_manifests(manifests, model)
    return manifests, "the hub"


def _clear(session: Session, node: NodeName) -> None:
    folder = session.site(WeightsSite).folder.path
    session.svc.nodes[node].call(Program("run_clear", {"folder": folder}, sudo=True, timeout_s=CLEAR_TIMEOUT_S))


def _look(
    session: Session, manifests: Sequence[Manifest], level: ProofLevel, node: NodeName
) -> tuple[RepositoryReport, ...]:
    svc = session.svc

    def work(progress: Progress) -> tuple[RepositoryReport, ...]:
        return tuple(
            RepositoryReport.parse(_prove(session, node, manifest, level, progress), manifest, needs_ref=True)
            for manifest in manifests
        )

    return told(session.sink, svc.clock, PHASE, str(node), step=level.step, work=work)


def _prove(session: Session, node: NodeName, manifest: Manifest, level: ProofLevel, progress: Progress) -> Any:
    """What `remote/hashing.py` says: called where it is a moment's work, else as a job that outlives us."""
    svc, site = session.svc, session.site(WeightsSite)
    if level is not ProofLevel.QUICK:
        seen = svc.survey.ask(node, weights_question(session.profile, manifest))
        if len(seen["missing"]) == seen["files"]:
            level = ProofLevel.QUICK  # nothing to hash, and perhaps no disk to keep a job's folder on
    if level is ProofLevel.QUICK:
        args = {"hf_home": site.profile.storage.hf_home, "manifest": manifest.as_dict(), "level": ProofLevel.QUICK}
        return svc.nodes[node].call(Program("hashing", args, sudo=True, timeout_s=QUICK_TIMEOUT_S))
    name = job_name(PHASE, is_draft=site.is_draft(manifest))
    job = proof_job(site, node, manifest, name, level=level, may_forget=True)
    try:
        return follow_job(svc, job, progress)
    finally:
        svc.survey.forget([node])  # it knows more of the files now
