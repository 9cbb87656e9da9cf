"""Watch a replica come up by all of its ranks' logs at once, until it is ready, or fails, or is late."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.errors import EngineError, Interrupted, K3Error
from k3deploy.domain.launch.replica_watch import (
    Late,
    RankEnd,
    RankWatch,
    Span,
    explain,
    first_failed,
    holds_up,
    last_lines,
    late,
    load_spread,
    stage_table,
    then_again,
)
from k3deploy.domain.launch.stages import Stage
from k3deploy.domain.launch.watch import RankLog
from k3deploy.domain.names import NodeName
from k3deploy.domain.profile.models import Timeouts
from k3deploy.domain.units import duration_text
from k3deploy.phases.engine_actions import OurContainer, StopRanks
from k3deploy.phases.log_streams import LogStreams, Word, log_program

_TICK_S: Final = 1.0
# What is seen has to last so long before it counts, while the other ranks' logs are read to the same moment: of several
# ranks that failed the first one is to be named, and a log that is read once more from its start is behind at first.
_SETTLE_S: Final = 3.0
# A rank that said a fatal line and still runs is given this long to end by itself.
_DYING_S: Final = 20.0
# A healthy group forms in about 40 s and a start has quiet minutes: so often it is said who is waited for.
_STILL_EVERY_S: Final = 60.0
_FOLLOW_MARGIN_S: Final = 600.0
_DIAL_TIMEOUT_S: Final = 5.0
# One node that loads this much later than the others has a slow disk.
_SPREAD_WORTH_SAYING_S: Final = 180.0


class _Standing(Enum):
    STARTING = auto()
    READY = auto()
    FAILED = auto()
    LATE = auto()


@dataclass(frozen=True)
class WatchedRank:
    container: OurContainer
    started_at: float


@dataclass(frozen=True)
class StartWatch:
    """`rendezvous`: the head's private address and port, to tell a silent rank from an unreachable head.

    Reading only, until something fails: then every rank is stopped, so that the next `up` starts the replica afresh
    and no GPU is held by ranks that wait for a dead one. The containers stay, for their logs.
    """

    replica: str
    ranks: tuple[WatchedRank, ...]
    timeouts: Timeouts
    rendezvous: tuple[str, int]
    artifact: str  # store key for the last lines of every rank when it fails

    def watch(self, svc: Services, progress: Progress) -> tuple[RankWatch, ...]:
        """Until the head says that it is ready; returns what every rank's log told.

        Raises EngineError for a rank that failed or is late, Interrupted after Ctrl-C (the engine goes on).
        """
        total_s = self.timeouts.group_s + self.timeouts.load_s + self.timeouts.warmup_s + _FOLLOW_MARGIN_S
        # A container that was started twice keeps the log of its first life.
        programs = {
            rank.container.node: log_program(rank.container.id, follow=True, timeout_s=total_s, since=rank.started_at)
            for rank in self.ranks
        }
        watches = {
            rank.container.node: RankWatch(
                rank.container.node, rank.container.node_rank, RankLog(rank.started_at), rank.started_at
            )
            for rank in self.ranks
        }
        with LogStreams(svc.nodes, programs) as streams:
            try:
                self._until_ready(svc, progress, streams, watches)
            except EngineError as error:
                self._abandon(svc, progress, tuple(watches.values()), error)
                raise
        return tuple(watches.values())

    def _until_ready(
        self, svc: Services, progress: Progress, streams: LogStreams, watches: dict[NodeName, RankWatch]
    ) -> None:
        ranks = tuple(watches.values())
        teller = _Teller(progress)
        ended: set[NodeName] = set()
        standing, since = _Standing.STARTING, 0.0
        while True:
            for word in streams.words(_TICK_S):
                _hear(watches[word.node], word)
                if word.end is not None:
                    ended.add(word.node)
            teller.tell(ranks)
            # The nodes' clocks: they go on with every beat, and are the ones that the log's times are of.
            now = max(rank.now for rank in ranks)
            found = self._standing(ranks)
            if found is not standing:
                standing, since = found, now
            if standing is not _Standing.STARTING and (
                now - since >= _patience_s(standing, ranks) or _all(ended, ranks)
            ):
                if standing is _Standing.READY:
                    return
                raise self._trouble(svc, ranks)
            if svc.cancel.is_set:
                raise Interrupted(
                    what=f"stopped watching {self.replica}: its engine goes on starting on the nodes",
                    fix="`k3deploy up` goes on watching it from its log",
                )
            if _all(ended, ranks):
                raise self._fell_silent(ranks)

    def _standing(self, ranks: Sequence[RankWatch]) -> "_Standing":
        if any(rank.is_head and rank.is_done and rank.end is None for rank in ranks):
            return _Standing.READY
        if first_failed(ranks) is not None:
            return _Standing.FAILED
        return _Standing.LATE if late(ranks, self.timeouts) is not None else _Standing.STARTING

    def _trouble(self, svc: Services, ranks: Sequence[RankWatch]) -> EngineError:
        failed, overdue = first_failed(ranks), late(ranks, self.timeouts)
        if failed is not None:
            return self._failed(failed, ranks)
        return self._late(svc, overdue, ranks) if overdue is not None else self._fell_silent(ranks)

    def _failed(self, failed: RankWatch, ranks: Sequence[RankWatch]) -> EngineError:
        why, fix = explain(failed)
        how = failed.end.text if failed.end else "it said that it cannot go on"
        return EngineError(
            what=f"{self.replica}: {failed.label} failed first, at stage: {failed.log.stage.text}; {how}",
            why=why,
            fix=then_again(fix, "every rank was stopped, `k3deploy up` starts the replica again"),
            context={
                "node": failed.node,
                "found": how,
                "wanted": "every rank running",
                "ranks": stage_table(ranks),
                "last lines": last_lines(failed),
                "log": self.artifact,
            },
        )

    def _fell_silent(self, ranks: Sequence[RankWatch]) -> EngineError:
        return EngineError(
            what=f"{self.replica}: the logs of all ranks ended before the engine was ready",
            why="the containers run, but Docker gives out no more of what they print",
            fix="look at `docker logs sgl` on the head; every rank was stopped, `k3deploy up` starts the replica again",
            context={"ranks": stage_table(ranks), "log": self.artifact},
        )

    def _late(self, svc: Services, overdue: Late, ranks: Sequence[RankWatch]) -> EngineError:
        setting = {Span.GROUP: "group_s", Span.LOAD: "load_s", Span.WARM_UP: "warmup_s"}[overdue.span]
        context: dict[str, object] = {
            "node": ", ".join(str(rank.node) for rank in overdue.ranks),
            "found": f"{overdue.span} for {duration_text(overdue.waited_s)}",
            "wanted": f"at most {duration_text(overdue.limit_s)} (timeouts.{setting})",
            "ranks": stage_table(ranks),
            "log": self.artifact,
        }
        fix = f"look at the last lines with `k3deploy logs`; if it was only slow, raise timeouts.{setting}"
        if overdue.span is Span.GROUP:
            context["reach"] = self._reach(svc, ranks)
            fix = "open every port between the nodes' private addresses, and check that no rank is started twice"
        return EngineError(
            what=f"{self.replica}: {overdue.span} is not done after {duration_text(overdue.waited_s)}: "
            f"{overdue.waits_for}",
            why="every rank waits for every other one, so one that hangs holds up the whole replica",
            fix=then_again(fix, "every rank was stopped, `k3deploy up` starts the replica again"),
            context=context,
        )

    def _reach(self, svc: Services, ranks: Sequence[RankWatch]) -> str:
        """Whether each follower's node can connect to the head's rendezvous port now."""
        host, port = self.rendezvous
        return "; ".join(
            f"{rank.node} -> {host}:{port} {self._dial(svc, rank.node)}" for rank in ranks if not rank.is_head
        )

    def _dial(self, svc: Services, node: NodeName) -> str:
        try:
            svc.nodes[node].dial(*self.rendezvous, timeout_s=_DIAL_TIMEOUT_S).close()
        except K3Error as error:
            return f"not reached ({error.why or error.what})"
        return "reached"

    def _abandon(self, svc: Services, progress: Progress, ranks: tuple[RankWatch, ...], error: EngineError) -> None:
        """Keep the last lines of every rank, then stop them all. What fails here must not hide the real failure."""
        text = "\n\n".join([str(error.what), *(f"== {rank.standing}\n" + "\n".join(rank.log.tail) for rank in ranks)])
        with suppress(K3Error):
            svc.store.put(self.artifact, text.encode())
        try:
            StopRanks(tuple(rank.container for rank in self.ranks), self.timeouts.stop_s).perform(svc, progress)
        except K3Error as failure:
            error.context["not stopped"] = failure.what


@dataclass
class _Teller:
    """Says each change once, and from time to time what is waited for."""

    progress: Progress

    def __post_init__(self) -> None:
        self._said: dict[NodeName, str] = {}
        self._still_at: float | None = None
        self._told_spread = False

    def tell(self, ranks: Sequence[RankWatch]) -> None:
        changed = False
        for rank in ranks:
            line = _said(rank)
            if self._said.get(rank.node) != line:
                self._said[rank.node] = line
                self.progress(f"{rank.node} rank {rank.node_rank}: {line}")
                changed = True
        now = max(rank.now for rank in ranks)
        if changed or self._still_at is None:
            self._still_at = now
        elif now - self._still_at >= _STILL_EVERY_S:
            self._still_at = now
            slowest = min(ranks, key=lambda rank: list(Span).index(rank.span))
            waiting = holds_up(ranks, slowest.span)
            self.progress(f"still {slowest.span} after {duration_text(slowest.waited_s)}: {waiting}")
        spread = load_spread(ranks)
        if spread is not None and not self._told_spread:
            self._told_spread = True
            last, seconds = spread
            if seconds > _SPREAD_WORTH_SAYING_S:
                self.progress(
                    f"{last.node} rank {last.node_rank} loaded {duration_text(seconds)} after the first one: "
                    "its disk is slow, and --dist-timeout has to outlast that"
                )


def _patience_s(standing: _Standing, ranks: Sequence[RankWatch]) -> float:
    if standing is _Standing.READY and all(rank.is_done for rank in ranks):
        return 0.0
    is_dying = standing is _Standing.FAILED and all(rank.end is None for rank in ranks)
    return _DYING_S if is_dying else _SETTLE_S


def _all(ended: set[NodeName], ranks: Sequence[RankWatch]) -> bool:
    return len(ended) == len(ranks)


def _said(rank: RankWatch) -> str:
    if rank.end is not None:
        return rank.end.text
    stage = rank.log.stage
    if stage is Stage.LOADING and rank.log.fraction is not None:
        return f"{stage.text} {int(rank.log.fraction * 10) * 10}%"
    return stage.text


def _hear(rank: RankWatch, word: Word) -> None:
    if word.now is not None:
        rank.now = word.now
    for at, text in word.lines:
        rank.log.feed(text, at)
    if word.end is not None and word.end["status"] not in ("running", "paused", "restarting"):
        rank.end = _end(word.end, rank.now)


def _end(body: Any, now: float) -> RankEnd:
    return RankEnd(
        status=body["status"],
        exit_code=body.get("exit_code"),
        oom_killed=bool(body.get("oom_killed")),
        error=body.get("error") or "",
        at=body.get("finished_at") or now,
    )
