"""A replica's start as its ranks' logs tell it together: who is late and for whom, who failed first. Pure.

Every rank waits for every other in the process group and again after loading, so one silent or dead rank looks like a
hang on all of them; here the logs are read side by side. Times are epoch seconds of each node's own clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from k3deploy.domain.launch.failures import Weight
from k3deploy.domain.launch.stages import Stage
from k3deploy.domain.launch.watch import RankLog, Trouble
from k3deploy.domain.names import NodeName
from k3deploy.domain.profile.models import Timeouts
from k3deploy.domain.units import duration_text

_LAST_LINES: Final = 12


class Span(StrEnum):
    """The three parts of a start, each with a deadline of its own."""

    GROUP = "forming the process group"
    LOAD = "loading weights"
    WARM_UP = "memory pools, CUDA graphs and warm-up"


@dataclass(frozen=True)
class RankEnd:
    """How a container ended."""

    status: str
    exit_code: int | None
    oom_killed: bool
    error: str
    at: float

    @property
    def text(self) -> str:
        if self.status == "absent":
            return "its container is gone"
        killed = ", killed for lack of memory" if self.oom_killed else ""
        words = f": {self.error}" if self.error else ""
        return f"its container {self.status} with code {self.exit_code}{killed}{words}"


@dataclass
class RankWatch:
    """`now` is the node's clock as it was last heard."""

    node: NodeName
    node_rank: int
    log: RankLog
    now: float
    end: RankEnd | None = None

    @property
    def label(self) -> str:
        return f"rank {self.node_rank} on {self.node}"

    @property
    def is_head(self) -> bool:
        return self.node_rank == 0

    @property
    def span(self) -> Span:
        if self.log.stage < Stage.GROUP_FORMED:
            return Span.GROUP
        return Span.LOAD if self.log.stage < Stage.LOADED else Span.WARM_UP

    @property
    def span_began_at(self) -> float:
        began = {Span.GROUP: None, Span.LOAD: Stage.GROUP_FORMED, Span.WARM_UP: Stage.LOADED}[self.span]
        at = None if began is None else self.log.since(began)
        return self.log.started_at if at is None else at

    @property
    def waited_s(self) -> float:
        return max(0.0, self.now - self.span_began_at)

    @property
    def is_done(self) -> bool:
        """Rank 0 says when it is ready; the others have no such line and are done with their graphs."""
        return self.log.stage >= (Stage.READY if self.is_head else Stage.GRAPHS_DONE)

    @property
    def failed_at(self) -> float | None:
        """When it said that it cannot go on, or ended; the earlier of the two."""
        times = [at for at in (self.log.failed_at, self.end.at if self.end else None) if at is not None]
        return min(times, default=None)

    @property
    def standing(self) -> str:
        """One line for people: how far it is, or how it ended."""
        if self.end is not None:
            return f"{self.label}: {self.end.text}, at stage: {self.log.stage.text}"
        bar = ""
        if self.log.stage == Stage.LOADING and self.log.fraction is not None:
            bar = f" {self.log.fraction:.0%}"
        return f"{self.label}: {self.log.stage.text}{bar}"


@dataclass(frozen=True)
class Late:
    """A part of the start took longer than it may. `waits_for`: who holds it up, as the logs show it."""

    span: Span
    limit_s: float
    waited_s: float
    ranks: tuple[RankWatch, ...]
    waits_for: str


def late(ranks: Sequence[RankWatch], timeouts: Timeouts) -> Late | None:
    """The part that is overdue now; None while all are in time."""
    limits = {Span.GROUP: timeouts.group_s, Span.LOAD: timeouts.load_s, Span.WARM_UP: timeouts.warmup_s}
    overdue = [rank for rank in ranks if not rank.is_done and rank.waited_s > limits[rank.span]]
    if not overdue:
        return None
    span = min((rank.span for rank in overdue), key=list(Span).index)
    concerned = tuple(rank for rank in overdue if rank.span == span)
    return Late(
        span,
        limits[span],
        max(rank.waited_s for rank in concerned),
        concerned,
        holds_up(ranks, span),
    )


def holds_up(ranks: Sequence[RankWatch], span: Span) -> str:
    """Who the others wait for, as far as the logs tell."""
    if span is Span.GROUP:
        silent = [rank for rank in ranks if rank.log.is_silent]
        if silent:
            return f"{_labels(silent)} never began to join; the others wait for {_it(silent)}"
        joining = [rank for rank in ranks if rank.log.stage < Stage.GROUP_FORMED]
        if len(joining) < len(ranks):
            return f"{_labels(joining)} got no further, though the others went on: it hangs"
        return f"{_labels(joining)} got no further: a rank cannot reach another one, or is there twice"
    behind = [rank for rank in ranks if not rank.is_done]
    slowest = min(behind, key=lambda rank: (rank.log.stage, rank.log.fraction or 0.0), default=None)
    if slowest is None:
        return "no rank says what it waits for"
    return f"the slowest is {slowest.standing}"


def load_spread(ranks: Sequence[RankWatch]) -> tuple[RankWatch, float] | None:
    """The rank that loaded last and how many seconds after the first one; None until all have loaded."""
    times = [(rank.log.number("loaded", "elapsed_s") or 0.0, rank) for rank in ranks if rank.log.stage >= Stage.LOADED]
    if len(times) < len(ranks) or not times:
        return None
    last_s, last = max(times, key=lambda pair: pair[0])
    return last, last_s - min(pair[0] for pair in times)


def first_failed(ranks: Sequence[RankWatch]) -> RankWatch | None:
    """The rank whose failure the others' followed: one with a cause of its own, of these the earliest."""
    failed = [(rank.failed_at, rank) for rank in ranks if rank.failed_at is not None]
    if not failed:
        return None

    def order(pair: tuple[float | None, RankWatch]) -> tuple[bool, float]:
        at, rank = pair
        cause = rank.log.cause
        is_consequence = cause is not None and cause.weight is Weight.CONSEQUENCE
        return is_consequence, at or 0.0

    return min(failed, key=order)[1]


def explain(rank: RankWatch) -> tuple[str, str]:
    """Why a rank failed and what to do, for people."""
    cause: Trouble | None = rank.log.cause
    own = rank.log.exception
    if rank.end is not None and rank.end.oom_killed:
        return (
            "the node's memory ran out and the kernel killed the container",
            "use nodes with more host memory, or look for what else uses it (`dmesg -T` on the node)",
        )
    if cause is not None and cause.weight is not Weight.GENERAL:
        return f"{cause.failure.meaning} (it said: {_short(cause.line)})", cause.failure.fix
    if own:
        return (
            f"it said: {_short(own)}",
            "put right what it names: an option or a size in the profile, or the node itself",
        )
    if cause is not None:
        return f"{cause.failure.meaning} (it said: {_short(cause.line)})", cause.failure.fix
    if rank.end is not None and rank.end.exit_code == 137:
        return (
            "it was killed from outside (SIGKILL), by the node's out-of-memory killer or by a person",
            "look at `dmesg -T` on the node",
        )
    last = rank.log.tail[-1] if rank.log.tail else "nothing at all"
    return f"it ended without naming a cause; its last line: {_short(last)}", "`k3deploy logs` shows all that it said"


def then_again(fix: str, closing: str) -> str:
    """A fix and what to type after it, unless the fix says that itself."""
    return fix if "k3deploy up" in fix else f"{fix}; {closing}"


def stage_table(ranks: Sequence[RankWatch]) -> str:
    """Every rank on a line, for the report of a failure."""
    return indented(f"{rank.standing} (for {duration_text(rank.waited_s)} in {rank.span})" for rank in ranks)


def last_lines(rank: RankWatch) -> str:
    """What it said last, for the report of a failure."""
    return indented(list(rank.log.tail)[-_LAST_LINES:])


def indented(lines: Iterable[str]) -> str:
    """Several lines below a fact's name."""
    return "".join(f"\n    {line}" for line in lines)


def _labels(ranks: Sequence[RankWatch]) -> str:
    return ", ".join(rank.label for rank in ranks)


def _it(ranks: Sequence[RankWatch]) -> str:
    return "it" if len(ranks) == 1 else "them"


def _short(line: str) -> str:
    return line if len(line) <= 300 else f"{line[:297]}..."
