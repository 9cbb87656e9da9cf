"""One rank's start-up as a fold over its log: how far it is, what it measured, why it failed. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from k3deploy.domain.launch.failures import Failure, Weight
from k3deploy.domain.launch.stages import Figure, Observation, Stage, read_line

TAIL_LINES: Final = 50


@dataclass(frozen=True)
class Trouble:
    """A failure as one rank's log told it. `at` is epoch seconds of that node's clock."""

    failure: Failure
    weight: Weight
    at: float
    line: str


@dataclass
class RankLog:
    """Feed it every line of one container's log, from the start. All times are epoch seconds of the node's clock."""

    started_at: float
    figures: dict[str, dict[str, Figure]] = field(default_factory=dict)
    reached: dict[Stage, float] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    fraction: float | None = None
    exception: str = ""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    _own: Stage = Stage.STARTED
    _by_gpu: dict[int, Stage] = field(default_factory=dict)

    @property
    def stage(self) -> Stage:
        """How far the node is: as far as its slowest GPU worker, unless its main process says more."""
        slowest = min(self._by_gpu.values(), default=Stage.STARTED)
        return max(self._own, slowest)

    @property
    def is_silent(self) -> bool:
        """It never began to join the process group."""
        return self.stage < Stage.GROUP_FORMING

    def since(self, stage: Stage) -> float | None:
        """When the node reached the stage or passed it; None while it has not."""
        if self.stage < stage:
            return None
        return min((at for passed, at in self.reached.items() if passed >= stage), default=self.started_at)

    def feed(self, line: str, at: float | None = None) -> Observation:
        """Take one line. `at` is when the container printed it; without it the line's own stamp counts."""
        seen = read_line(line)
        when = at if at is not None else seen.at if seen.at is not None else self._latest
        before = self.stage
        if seen.fraction is not None:
            self.fraction = seen.fraction
            return seen  # a bar redraws itself a hundred times: it is no line worth keeping
        if line.strip():
            self.tail.append(line.rstrip())
        if seen.topic:
            self.figures.setdefault(seen.topic, {}).update(seen.figures)
        if seen.exception is not None:
            self.exception = seen.exception
        if seen.failure is not None:
            # A warning that is raised as an exception is the cause of what follows.
            is_raised = seen.exception is not None and seen.failure.weight is Weight.NOTE
            weight = Weight.CAUSE if is_raised else seen.failure.weight
            self.troubles.append(Trouble(seen.failure, weight, when, line.strip()))
        if seen.stage is not None:
            self._advance(seen.stage, seen.tp_rank)
        if self.stage > before:
            self.reached[self.stage] = when
        elif self.stage < before:  # a worker that had been silent so far holds the node back
            self.reached = {stage: at for stage, at in self.reached.items() if stage <= self.stage}
        return seen

    def _advance(self, stage: Stage, tp_rank: int | None) -> None:
        if tp_rank is None:
            self._own = max(self._own, stage)
        else:
            self._by_gpu[tp_rank] = max(self._by_gpu.get(tp_rank, Stage.STARTED), stage)

    @property
    def _latest(self) -> float:
        return max(self.reached.values(), default=self.started_at)

    @property
    def failed_at(self) -> float | None:
        """When it first said something that it cannot recover from."""
        return min((trouble.at for trouble in self.troubles if trouble.weight > Weight.NOTE), default=None)

    @property
    def cause(self) -> Trouble | None:
        """The trouble that explains the failure best: the heaviest, of equals the first."""
        return max(self.troubles, key=lambda trouble: trouble.weight, default=None)

    def figure(self, topic: str, name: str) -> Figure | None:
        return self.figures.get(topic, {}).get(name)

    def number(self, topic: str, name: str) -> float | None:
        found = self.figure(topic, name)
        return found if isinstance(found, int | float) else None
