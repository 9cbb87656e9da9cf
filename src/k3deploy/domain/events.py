"""What happened, as frozen, versioned values. State, console, `status` and the report are folds over them.

On the wire an event is one JSON line: {"schema": 1, "seq": n, "at": epoch seconds, "type": "StepStarted", ...fields}.
Intent is written before an act (StepStarted), outcome after (StepFinished, Verified, TargetFailed).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Final

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True)
class Event:
    """`at` is seconds since the epoch, set by the runner's clock."""

    at: float

    def to_json(self, seq: int) -> str:
        body = {"schema": SCHEMA, "seq": seq, "type": type(self).__name__, **asdict(self)}
        return json.dumps(body, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    run_id: str
    flow: str  # up, teardown
    profile: str
    nodes: tuple[str, ...]
    usd_per_hour: float | None = None


@dataclass(frozen=True, kw_only=True)
class PhaseStarted(Event):
    phase: str
    target: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Planned(Event):
    """Titles of the steps to come, or the reason why there are none."""

    phase: str
    target: str
    steps: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    reason: str = ""
    is_dry: bool = False  # shown only, nothing follows


@dataclass(frozen=True, kw_only=True)
class StepStarted(Event):
    phase: str
    target: str
    step: str


@dataclass(frozen=True, kw_only=True)
class Progressed(Event):
    """Transient: shown, not stored. `numbers` are what the action counts besides, units in the names (`hub_bps`)."""

    phase: str
    target: str
    message: str
    done: float | None = None
    total: float | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StepFinished(Event):
    phase: str
    target: str
    step: str
    duration_s: float


@dataclass(frozen=True, kw_only=True)
class Retried(Event):
    phase: str
    target: str
    attempt: int
    reason: str
    delay_s: float


@dataclass(frozen=True, kw_only=True)
class Verified(Event):
    phase: str
    target: str
    summary: str
    has_changed: bool  # False: nothing was to be done
    duration_s: float
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TargetFailed(Event):
    phase: str
    target: str
    error: Mapping[str, Any]  # K3Error.as_dict()
    duration_s: float


@dataclass(frozen=True, kw_only=True)
class TargetBlocked(Event):
    """Not started, because something it needs failed or the run was interrupted."""

    phase: str
    target: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RunFinished(Event):
    run_id: str
    outcome: str  # done, failed, interrupted, torn-down
    has_changed: bool
    duration_s: float


EVENT_TYPES: Final[tuple[type[Event], ...]] = (
    RunStarted,
    PhaseStarted,
    Planned,
    StepStarted,
    Progressed,
    StepFinished,
    Retried,
    Verified,
    TargetFailed,
    TargetBlocked,
    RunFinished,
)


class _Registry:
    by_name: ClassVar[dict[str, type[Event]]] = {kind.__name__: kind for kind in EVENT_TYPES}


def from_json(line: str) -> Event | None:
    """Read one stored line. An event type of a newer version gives None, so an old client can still fold a log.

    Raises ValueError for a line that is not an event at all.
    """
    body = json.loads(line)
    if not isinstance(body, dict) or "type" not in body:
        raise ValueError("not an event")
    kind = _Registry.by_name.get(body["type"])
    if kind is None:
        return None
    known = {f.name for f in fields(kind)}
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in body.items() if name in known}
    build: Callable[..., Event] = kind
    return build(**values)
