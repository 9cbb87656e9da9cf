"""Small phases and a runner over fakes, shared by the runner's tests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import K3Error
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName, RunId
from k3deploy.domain.run import Keys
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.runner.marker import Markers
from k3deploy.runner.run import Runner
from k3deploy.runner.unit import UnitRunner
from k3deploy.testing import Recorder, services


@dataclass
class World:
    """What the phases act on: facts that steps set, and a list of all that was performed."""

    facts: set[tuple[str, str]] = field(default_factory=set)
    performed: list[tuple[str, str]] = field(default_factory=list)
    before: dict[tuple[str, str], Callable[[], None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Set:
    world: World
    phase: str
    target: str
    sticks: bool = True

    def perform(self, svc: Services, progress: Progress) -> None:
        key = (self.phase, self.target)
        hook = self.world.before.get(key)
        if hook is not None:
            hook()
        self.world.performed.append(key)
        progress(f"setting {self.phase}", done=1, total=1)
        if self.sticks:
            self.world.facts.add(key)


@dataclass(frozen=True)
class SetPhase:
    """A phase whose work is one fact per target."""

    name: PhaseName
    world: World
    over: tuple[Target, ...]
    needs: tuple[PhaseName, ...] = ()
    digest: str = "v1"
    sticks: bool = True
    title: str = "Set a fact"
    probe_error: K3Error | None = None

    def targets(self) -> Sequence[Target]:
        return self.over

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return {}

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return InputsDigest(self.digest)

    def probe(self, svc: Services, target: Target) -> bool:
        if self.probe_error is not None:
            raise self.probe_error
        return (self.name, target.name) in self.world.facts

    def plan(self, target: Target, seen: bool) -> Plan:
        if seen:
            return Plan.noop("already set")
        return Plan.of(Step(f"set {self.name}", Set(self.world, self.name, target.name, self.sticks)))

    def verify(self, svc: Services, target: Target) -> Verdict:
        if (self.name, target.name) in self.world.facts:
            return Verdict.ok("is set", fact=self.name)
        return Verdict.bad("is not set", fix="set it")


def node(name: str) -> Target:
    return Target.node(NodeName(name))


def replica(name: str, *nodes: str) -> Target:
    return Target.replica(name, tuple(NodeName(n) for n in nodes))


KEYS = Keys(RunId("lab-20261129-000000-abcd"))


def runner(svc: Services | None = None, *, is_dry: bool = False) -> tuple[Runner, Recorder, Services]:
    svc = svc or services()
    recorder = Recorder()
    return (
        Runner(svc, UnitRunner(svc, Markers(svc.store, KEYS), recorder, is_dry=is_dry), recorder),
        recorder,
        svc,
    )
