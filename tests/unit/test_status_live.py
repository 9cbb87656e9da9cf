"""`status --live`: all nodes are asked at once, each once, whatever the number of phases that want to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from k3deploy.adapters.profiles import load_profile
from k3deploy.contracts import Node, Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import NodeUnreachable
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName, RunId
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.run import RunRecord
from k3deploy.domain.steps import Plan, Target, TargetKind, Verdict
from k3deploy.domain.topology import assign
from k3deploy.flows.session import Session
from k3deploy.flows.status import UnitHealth, look
from k3deploy.runner.survey import BatchingSurvey
from k3deploy.testing import FakeNodes, FakeWheelhouse, Recorder, services

NAMES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
AWAY = NodeUnreachable(what="gpu-02: no answer", fix="look at the machine")


@dataclass(frozen=True)
class AskingPhase:
    """Its unit is well when every node of it answers "yes" to this phase's question."""

    name: PhaseName
    over: tuple[Target, ...]
    section: str | None
    title: str = "Ask"
    needs: tuple[PhaseName, ...] = ()

    def targets(self) -> Sequence[Target]:
        return self.over

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return {} if self.section is None else dict.fromkeys(target.nodes, (Question.of(self.section),))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        raise AssertionError("a look needs no marker")

    def probe(self, svc: Services, target: Target) -> None:
        raise AssertionError("a look plans nothing")

    def plan(self, target: Target, seen: None) -> Plan:
        raise AssertionError("a look plans nothing")

    def verify(self, svc: Services, target: Target) -> Verdict:
        if self.section is None:
            return Verdict.ok("kept in the store")
        answers = [svc.survey.ask(node, Question.of(self.section))["is_well"] for node in target.nodes]
        return Verdict.ok("yes") if all(answers) else Verdict.bad("no", fix="mend it")


@dataclass
class CountingNodes:
    """How often each node was turned to."""

    nodes: FakeNodes
    turned_to: list[NodeName] = field(default_factory=list)

    def __getitem__(self, name: NodeName) -> Node:
        self.turned_to.append(name)
        return self.nodes[name]

    def close(self) -> None:
        self.nodes.close()


def test_a_node_that_is_away_is_tried_once_and_the_others_are_told_of() -> None:
    fakes = FakeNodes(*NAMES)
    for name in NAMES:
        fakes[NodeName(name)].answers = {"facts": {"is_well": True}, "container": {"is_well": name != "gpu-03"}}
    fakes[NodeName("gpu-02")].error = AWAY
    nodes = CountingNodes(fakes)
    every = tuple(NodeName(name) for name in NAMES)
    on_nodes = tuple(Target.node(name) for name in every)
    phases = (
        AskingPhase(PhaseName("facts"), on_nodes, "facts"),
        AskingPhase(PhaseName("list"), (Target(TargetKind.RUN, "run", every),), None),
        AskingPhase(PhaseName("engine"), on_nodes, "container"),
        AskingPhase(PhaseName("ready"), (Target.replica("serve-0", every),), "facts"),
    )

    found = look(_session(nodes), phases)

    assert found == (
        UnitHealth("facts", "gpu-01", True, "yes"),
        UnitHealth("facts", "gpu-02", False, "gpu-02: no answer"),
        UnitHealth("facts", "gpu-03", True, "yes"),
        UnitHealth("facts", "gpu-04", True, "yes"),
        UnitHealth("list", "run", True, "kept in the store"),
        UnitHealth("engine", "gpu-01", True, "yes"),
        UnitHealth("engine", "gpu-02", False, "gpu-02: no answer"),
        UnitHealth("engine", "gpu-03", False, "no"),
        UnitHealth("engine", "gpu-04", True, "yes"),
        UnitHealth("ready", "serve-0", False, "gpu-02: no answer"),
    )
    assert sorted(nodes.turned_to) == list(NAMES)


def _session(nodes: CountingNodes) -> Session:
    profile = load_profile("h100x32")
    nodes_file = NodesFile(nodes=tuple(NodeEntry(name=name, address=name) for name in NAMES))
    survey = BatchingSurvey(nodes)
    return Session(
        record=RunRecord(RunId("h100x32-20261129-000000-abcd"), profile.name, {}, 0.0, None),
        profile=profile,
        nodes_file=nodes_file,
        topology=assign(profile, nodes_file),
        svc=services(nodes=nodes, survey=survey),
        survey=survey,
        sink=Recorder(),
        option_lists=OptionLists(),
        wheelhouse=FakeWheelhouse(),
    )
