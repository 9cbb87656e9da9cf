"""What is done to one target, told as events: for flows whose units are not the runner's."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from k3deploy.contracts import Clock, EventSink, Progress
from k3deploy.domain import events as ev
from k3deploy.domain.errors import K3Error

Found = TypeVar("Found")


def progress_to(sink: EventSink, clock: Clock, phase: str, target: str) -> Progress:
    """A Progress whose words become events of this phase and target."""

    def tell(
        message: str,
        *,
        done: float | None = None,
        total: float | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> None:
        sink.emit(
            ev.Progressed(
                at=clock.now(),
                phase=phase,
                target=target,
                message=message,
                done=done,
                total=total,
                numbers=dict(numbers or {}),
            )
        )

    return tell


def told(
    sink: EventSink, clock: Clock, phase: str, target: str, *, step: str, work: Callable[[Progress], Found]
) -> Found:
    """Do the work between its events. Raises what it raises."""
    started = clock.monotonic()
    sink.emit(ev.PhaseStarted(at=clock.now(), phase=phase, target=target, title=step))
    sink.emit(ev.StepStarted(at=clock.now(), phase=phase, target=target, step=step))
    try:
        found = work(progress_to(sink, clock, phase, target))
    except K3Error as error:
        lasted_s = clock.monotonic() - started
        failed = ev.TargetFailed(at=clock.now(), phase=phase, target=target, error=error.as_dict(), duration_s=lasted_s)
        sink.emit(failed)
        raise
    lasted_s = clock.monotonic() - started
    sink.emit(ev.StepFinished(at=clock.now(), phase=phase, target=target, step=step, duration_s=lasted_s))
    return found
