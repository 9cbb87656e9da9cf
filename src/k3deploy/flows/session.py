"""What flows over nodes have in common: the run, its services, and how phases are run and recorded."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TypeVar

from k3deploy.contracts import EventSink, Services, Wheelhouse
from k3deploy.domain import events as ev
from k3deploy.domain.command import Question
from k3deploy.domain.errors import Interrupted, K3Error, PhaseFailed, StoreError
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.names import NodeName
from k3deploy.domain.nodes_file import NodesFile
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.run import Keys, RunRecord
from k3deploy.domain.run_state import RunState, apply
from k3deploy.domain.topology import Topology
from k3deploy.phases.node_site import NodeSite
from k3deploy.runner.event_log import EventLog
from k3deploy.runner.graph import AnyPhase
from k3deploy.runner.marker import Markers
from k3deploy.runner.run import Result, Runner, tee
from k3deploy.runner.survey import BatchingSurvey
from k3deploy.runner.unit import UnitRunner

Site = TypeVar("Site", bound=NodeSite)


@dataclass(frozen=True)
class Session:
    """One flow on one run. `survey` is the one inside `svc`, known here by its class to take standing questions."""

    record: RunRecord
    profile: Profile
    nodes_file: NodesFile
    topology: Topology
    svc: Services
    survey: BatchingSurvey
    sink: EventSink
    option_lists: OptionLists  # of the profile's engine, by version
    wheelhouse: Wheelhouse

    @property
    def keys(self) -> Keys:
        return Keys(self.record.run_id)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        return self.topology.nodes

    def site(self, kind: type[Site]) -> Site:
        """The run as a kind of phase sees it."""
        return kind(self.profile, self.topology, self.nodes_file, self.record.run_id)


@dataclass(frozen=True)
class Outcome:
    result: Result
    state: RunState


class _StateSink:
    def __init__(self) -> None:
        self.state = RunState()

    def emit(self, event: ev.Event) -> None:
        apply(self.state, event)


def run_phases(
    session: Session,
    phases: Sequence[AnyPhase],
    *,
    flow: str,
    nodes: Sequence[NodeName] | None = None,
    outcome: str = "done",
    is_dry: bool = False,
) -> Outcome:
    """Run the phases on all nodes or on these, with their events on the console and, unless dry, in the run's log.

    `outcome` is what the run's log says when all went well. Failures are in the result, not raised.
    """
    svc, clock = session.svc, session.svc.clock
    folded = _StateSink()
    log = EventLog(svc.store, session.keys)
    sink = tee(session.sink, folded) if is_dry else tee(session.sink, folded, log)
    session.survey.standing = lambda node: standing_questions(svc, phases, node)
    started = clock.monotonic()
    sink.emit(
        ev.RunStarted(
            at=clock.now(),
            run_id=session.record.run_id,
            flow=flow,
            profile=session.profile.name,
            nodes=tuple(session.nodes),
            usd_per_hour=session.record.usd_per_hour,
        )
    )
    units = UnitRunner(svc, Markers(svc.store, session.keys), sink, is_dry=is_dry)
    result = Runner(svc, units, sink).run(phases, nodes)
    if result.is_interrupted:
        outcome = "interrupted"
    elif result.failures or result.blocked:
        outcome = "failed"
    finished = ev.RunFinished(
        at=clock.now(),
        run_id=session.record.run_id,
        outcome=outcome,
        has_changed=result.has_changed,
        duration_s=clock.monotonic() - started,
    )
    # A log whose end is not kept must not hide the failures, of which the store may be one.
    with nullcontext() if result.is_done else suppress(StoreError):
        sink.emit(finished)
    return Outcome(result, folded.state)


def standing_questions(svc: Services, phases: Sequence[AnyPhase], node: NodeName) -> list[Question]:
    """All that the phases' `verify` will ask about one node."""
    asked: list[Question] = []
    for phase in phases:
        for target in phase.targets():
            if node in target.nodes:
                asked += phase.questions(svc, target).get(node, ())
    return asked


def raise_for(result: Result, *, again: str) -> None:
    """Turn what did not go well into the one error that the command line shows. `again` is the command to resume."""
    if result.failures:
        failures = _grouped(list(result.failures.values()))
        count = len(result.failures)
        raise PhaseFailed(
            failures=failures,
            what=f"failed: {count}, not started: {len(result.blocked)}, done: {len(result.ended)}",
            why="every failure is above; what depends on one was not started, finished work is kept",
            fix=f"mend the cause, then `{again}`: it goes on where this stopped",
        )
    if result.is_interrupted:
        raise Interrupted(
            what="interrupted: nothing was started after the steps in hand; detached work on the nodes goes on",
            fix=f"`{again}` goes on where this stopped",
        )


def _grouped(failures: list[K3Error]) -> list[K3Error]:
    """One entry per cause: the same words from several nodes are shown once, with all the targets."""
    by_cause: dict[tuple[str, str, str], K3Error] = {}
    targets: dict[tuple[str, str, str], list[str]] = {}
    for failure in failures:
        cause = (failure.what, failure.why, failure.fix)
        by_cause.setdefault(cause, failure)
        targets.setdefault(cause, []).append(str(failure.context.get("target", "")))
    for cause, failure in by_cause.items():
        if len(targets[cause]) > 1:
            failure.context["target"] = ", ".join(targets[cause])
    return list(by_cause.values())
