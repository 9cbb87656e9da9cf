"""`teardown`: all that a run has on its nodes ends, in the order that loses nothing; unconfirmed, it only looks."""

from dataclasses import dataclass
from typing import Any

from k3deploy.domain.errors import K3Error
from k3deploy.domain.holdings import Doomed, TeardownOptions
from k3deploy.domain.names import NodeName
from k3deploy.domain.run import RunRecord
from k3deploy.flows.runs import Runs
from k3deploy.flows.session import Outcome, Session, run_phases
from k3deploy.phases.on_each import try_each
from k3deploy.phases.teardown.export_logs import LogsExportPhase
from k3deploy.phases.teardown.prove_free import ProveFreePhase
from k3deploy.phases.teardown.purge import WeightsPurgePhase
from k3deploy.phases.teardown.release import ReleasePhase
from k3deploy.phases.teardown.remove import EngineRemovePhase
from k3deploy.phases.teardown.restore import StorageRestorePhase
from k3deploy.phases.teardown.site import TeardownSite
from k3deploy.phases.teardown.stop import EngineStopPhase
from k3deploy.runner.graph import AnyPhase


def teardown_site(session: Session, options: TeardownOptions) -> TeardownSite:
    return TeardownSite(session.profile, session.topology, session.nodes_file, session.record.run_id, options)


def teardown_phases(session: Session, options: TeardownOptions) -> tuple[AnyPhase, ...]:
    site = teardown_site(session, options)
    release = session.profile.release
    return (
        EngineStopPhase(site),
        LogsExportPhase(site),
        EngineRemovePhase(site),
        *((WeightsPurgePhase(site),) if options.purges_weights else ()),
        *((StorageRestorePhase(site),) if options.restores else ()),
        ProveFreePhase(site),
        *((ReleasePhase(site, release),) if release is not None else ()),
    )


def teardown(session: Session, options: TeardownOptions) -> Outcome:
    """Run the phases. The run counts as torn down only when every node is done; else it stays live, and the next
    teardown goes on with what is left. Failures are in the result."""
    outcome = run_phases(session, teardown_phases(session, options), flow="teardown", outcome="torn-down")
    if outcome.result.is_done:
        Runs(session.svc.store).mark_torn_down(session.record.run_id, session.svc.clock.now())
    return outcome


@dataclass(frozen=True)
class Preview:
    """What a teardown would do on each node."""

    record: RunRecord
    nodes: tuple[Doomed, ...]
    options: TeardownOptions
    release: tuple[str, ...] | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "run_id": self.record.run_id,
            "is_confirmed": False,
            "nodes": [node.as_dict(self.options, self.release) for node in self.nodes],
        }

    def text(self) -> str:
        rows = [f"run {self.record.run_id} on {len(self.nodes)} nodes; with --confirm this would be done:"]
        for node in self.nodes:
            rows.append(f"{node.node} ({node.address})")
            rows += [f"  {line}" for line in node.lines(self.options, self.release)]
        return "\n".join(rows)


def preview(session: Session, options: TeardownOptions) -> Preview:
    """Look at every node at once; one that cannot be reached is listed as such. Changes nothing."""
    site = teardown_site(session, options)
    session.survey.standing = lambda _node: (site.container_question, site.holdings_question)
    found, failed = try_each(session.nodes, lambda node: _look(session, site, node))
    release = session.profile.release
    return Preview(
        session.record,
        tuple(found[node] if node in found else _away(session, node, failed[node]) for node in session.nodes),
        options,
        release.argv if release is not None else None,
    )


def _look(session: Session, site: TeardownSite, node: NodeName) -> Doomed:
    return Doomed(
        node, session.nodes_file.entry(node).address, site.seen(session.svc, node), site.held(session.svc, node)
    )


def _away(session: Session, node: NodeName, error: K3Error) -> Doomed:
    return Doomed(node, session.nodes_file.entry(node).address, error=error.what)
