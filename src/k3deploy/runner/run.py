"""Run all units of a flow: each as soon as what it waits for is done, all failures kept, two ways to stop."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from k3deploy.contracts import EventSink, Services
from k3deploy.domain import events as ev
from k3deploy.domain.errors import Bug, Interrupted, K3Error
from k3deploy.domain.names import NodeName
from k3deploy.runner.graph import AnyPhase, Unit, dependencies, units
from k3deploy.runner.retry import Retry
from k3deploy.runner.unit import Ended, UnitRunner

# One thread per unit in flight: paramiko blocks, and the interpreter lock is not the limit below 64 nodes.
MAX_IN_FLIGHT = 64
# How often the waiting main thread wakes, so that a signal handler gets its turn.
_TICK_S = 0.2


@dataclass
class Result:
    """How every unit ended. `blocked` never started."""

    ended: dict[tuple[str, str], Ended] = field(default_factory=dict)
    failures: dict[tuple[str, str], K3Error] = field(default_factory=dict)
    blocked: dict[tuple[str, str], str] = field(default_factory=dict)
    is_interrupted: bool = False

    @property
    def has_changed(self) -> bool:
        return Ended.CHANGED in self.ended.values()

    @property
    def has_pending(self) -> bool:
        return Ended.PENDING in self.ended.values()

    @property
    def is_done(self) -> bool:
        return not self.failures and not self.blocked and not self.is_interrupted


@dataclass
class Runner:
    svc: Services
    units: UnitRunner
    sink: EventSink
    retry: Retry = field(default_factory=Retry)

    def run(self, phases: Sequence[AnyPhase], nodes: Sequence[NodeName] | None = None) -> Result:
        """Run the phases to the end, on all nodes or on these. Never raises for a failed unit: the result has them."""
        waits = dependencies(units(phases, nodes))
        result = Result()
        waiting = list(waits)
        flying: dict[Future[Ended], Unit] = {}
        with ThreadPoolExecutor(MAX_IN_FLIGHT, thread_name_prefix="unit") as pool:
            while waiting or flying:
                waiting = self._start_ready(waiting, waits, flying, pool, result)
                done, _ = wait(flying, timeout=_TICK_S, return_when=FIRST_COMPLETED)
                for future in done:
                    self._collect(flying.pop(future), future, result)
        return result

    def _start_ready(
        self,
        waiting: list[Unit],
        waits: Mapping[Unit, tuple[Unit, ...]],
        flying: dict[Future[Ended], Unit],
        pool: ThreadPoolExecutor,
        result: Result,
    ) -> list[Unit]:
        still: list[Unit] = []
        for unit in waiting:
            needs = waits[unit]
            broken = [need for need in needs if need.key in result.failures or need.key in result.blocked]
            if broken:
                self._block(unit, f"waits for {broken[0].label}, which did not finish", result)
            elif self.svc.cancel.is_set:
                result.is_interrupted = True
                self._block(unit, "interrupted before it started", result)
            elif all(need.key in result.ended for need in needs):
                pending = any(result.ended[need.key] is Ended.PENDING for need in needs)
                flying[pool.submit(self._attempts, unit, pending)] = unit
            else:
                still.append(unit)
        return still

    def _attempts(self, unit: Unit, has_pending_needs: bool) -> Ended:
        attempt = 1
        while True:
            try:
                return self.units.run(unit, has_pending_needs=has_pending_needs)
            except Interrupted:
                raise
            except K3Error as error:
                delay_s = self.retry.delay_after(attempt, error)
                if delay_s is None or self.svc.cancel.is_set:
                    raise
                self.sink.emit(
                    ev.Retried(
                        at=self.svc.clock.now(),
                        phase=str(unit.phase.name),
                        target=unit.target.name,
                        attempt=attempt,
                        reason=error.what,
                        delay_s=delay_s,
                    )
                )
                if self.svc.cancel.wait(delay_s):
                    raise
                self.svc.survey.forget(unit.target.nodes)
                attempt += 1

    def _collect(self, unit: Unit, future: Future[Ended], result: Result) -> None:
        error = future.exception()
        if error is None:
            result.ended[unit.key] = future.result()
        elif isinstance(error, Interrupted):
            result.is_interrupted = True
            self._block(unit, error.what, result)
        else:
            failure = error if isinstance(error, K3Error) else Bug.of(error)
            failure.context.setdefault("phase", unit.phase.name)
            failure.context.setdefault("target", unit.target.name)
            result.failures[unit.key] = failure
            self.sink.emit(
                ev.TargetFailed(
                    at=self.svc.clock.now(),
                    phase=str(unit.phase.name),
                    target=unit.target.name,
                    error=failure.as_dict(),
                    duration_s=0.0,
                )
            )

    def _block(self, unit: Unit, reason: str, result: Result) -> None:
        result.blocked[unit.key] = reason
        self.sink.emit(
            ev.TargetBlocked(
                at=self.svc.clock.now(), phase=str(unit.phase.name), target=unit.target.name, reason=reason
            )
        )


def tee(*sinks: EventSink) -> EventSink:
    """One sink that passes every event to several, one event at a time."""
    return _Tee(sinks)


@dataclass
class _Tee:
    sinks: tuple[EventSink, ...]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def emit(self, event: ev.Event) -> None:
        with self._lock:
            for sink in self.sinks:
                sink.emit(event)
