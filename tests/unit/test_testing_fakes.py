"""The fakes are as strict as what they stand for."""

import json

import pytest

from k3deploy.domain.command import Command, CommandResult, Program, Question, Secret
from k3deploy.domain.errors import HubError, NodeUnreachable, ProgramFailed
from k3deploy.domain.events import PhaseStarted, RunFinished
from k3deploy.domain.names import Commit, NodeName
from k3deploy.domain.weights import Manifest
from k3deploy.testing import (
    FakeCancel,
    FakeClock,
    FakeHub,
    FakeNode,
    FakeNodes,
    FakeSurvey,
    MemoryPins,
    Recorder,
    Unscripted,
    services,
)

GPU = NodeName("gpu-00")


def test_a_command_nobody_told_about_fails_the_test() -> None:
    node = FakeNode()
    node.on_command(("docker", "info"), "ok")
    with pytest.raises(Unscripted, match="docker"):
        node.run(Command(("docker", "ps")))


def test_the_longest_prefix_answers() -> None:
    node = FakeNode()
    node.on_command(("docker",), CommandResult(1, "", "no"))
    node.on_command(("docker", "info"), "yes")
    assert node.run(Command(("docker", "info", "-f", "x"))).stdout == "yes"
    assert node.run(Command(("docker", "ps"))).exit_code == 1
    assert node.argvs == [("docker", "info", "-f", "x"), ("docker", "ps")]


def test_a_program_that_does_not_exist_fails_the_test() -> None:
    node = FakeNode()
    node.on_program("survey_typo", {})
    with pytest.raises(Unscripted, match=r"no module k3deploy\.remote\.survey_typo"):
        node.call(Program("survey_typo"))
    node.on_program("survey", {})
    with pytest.raises(Unscripted, match=r"no module k3deploy\.remote\.sections\.none"):
        node.call(Program("survey", includes=("sections.none",)))


def test_a_result_that_json_cannot_carry_fails() -> None:
    node = FakeNode()
    node.on_program("survey", {"secret": Secret("x")})
    with pytest.raises(TypeError):
        node.call(Program("survey"))


def test_questions_are_answered_by_section() -> None:
    node = FakeNode()
    node.answers["facts"] = {"gpus": 8}
    node.answers["port"] = lambda args: {"port": args["port"]}
    node.answers["bad"] = ProgramFailed(what="no", why="w", fix="f", context={"a": 1})
    questions = [{"section": name, "args": {"port": 80}} for name in ("facts", "port", "bad")]
    assert node.call(Program("survey", {"questions": questions}))["answers"] == [
        {"answer": {"gpus": 8}},
        {"answer": {"port": 80}},
        {"refusal": {"what": "no", "why": "w", "fix": "f", "context": {"a": 1}}},
    ]
    with pytest.raises(Unscripted, match="section 'other'"):
        node.call(Program("survey", {"questions": [{"section": "other", "args": {}}]}))


def test_a_machine_can_be_away() -> None:
    node = FakeNode()
    node.on_command(("true",), "")
    node.error = NodeUnreachable(what="gone", fix="-")
    for use in (
        lambda: node.run(Command(("true",))),
        lambda: node.call(Program("survey")),
        lambda: node.put(b"", "/x"),
        lambda: node.dial("h", 1, timeout_s=1),
    ):
        with pytest.raises(NodeUnreachable):
            use()


def test_nodes_and_connections_nobody_told_about_fail_the_test() -> None:
    nodes = FakeNodes("gpu-00")
    assert nodes["gpu-00"] is nodes[GPU]
    assert nodes.used == {GPU}
    with pytest.raises(Unscripted, match="gpu-01"):
        nodes["gpu-01"]
    with pytest.raises(Unscripted, match=r"10\.0\.0\.1:80"):
        nodes["gpu-00"].dial("10.0.0.1", 80, timeout_s=1)


def test_the_survey_answers_for_one_node_or_all() -> None:
    survey = FakeSurvey(facts={"gpus": (8,)})
    survey.on("facts", {"gpus": [4]}, node="gpu-01")
    survey.on("bad", NodeUnreachable(what="gone", fix="-"))
    assert survey.ask(GPU, Question.of("facts")) == {"gpus": [8]}
    assert survey.ask(NodeName("gpu-01"), Question.of("facts")) == {"gpus": [4]}
    with pytest.raises(NodeUnreachable):
        survey.ask(GPU, Question.of("bad"))
    with pytest.raises(Unscripted):
        survey.ask(GPU, Question.of("other"))
    survey.forget([GPU])
    assert survey.forgotten == [GPU]


def test_time_moves_only_by_sleeping() -> None:
    clock = FakeClock(now=100.0, monotonic=5.0)
    clock.sleep(2.5)
    clock.advance(1)
    assert (clock.now(), clock.monotonic(), clock.slept) == (103.5, 8.5, [2.5])


def test_a_cancel_can_be_placed() -> None:
    clock = FakeClock()
    cancel = FakeCancel(clock=clock, after_waits=3)
    assert [cancel.wait(10) for _ in range(4)] == [False, False, True, True]
    assert clock.slept == [10, 10]
    assert cancel.is_set


def test_the_first_settlement_wins() -> None:
    pins = MemoryPins(image={"digest": "a"})
    assert pins.settle("image", {"digest": "b"}) == {"digest": "a"}
    assert pins.get("none") is None
    assert pins.settle("new", {"x": (1,)}) == {"x": [1]}


def test_the_hub_knows_what_it_was_given() -> None:
    manifest = Manifest("lab/x", Commit("a" * 40), ())
    hub = FakeHub(manifest, token=Secret("hf_x"), environment={"HF_ENDPOINT": "http://h"})
    assert hub.manifest("lab/x", "main") is hub.manifest("lab/x", "a" * 40) is manifest
    assert hub.asked == [("lab/x", "main"), ("lab/x", "a" * 40)]
    hub.error = HubError(what="down", fix="-")
    with pytest.raises(HubError, match="down"):
        hub.manifest("lab/x", "main")


def test_the_recorder_keeps_events_in_order() -> None:
    recorder = Recorder()
    recorder.emit(PhaseStarted(at=1, phase="connect", target="gpu-00", title="t"))
    recorder.emit(RunFinished(at=2, run_id="r", outcome="done", has_changed=False, duration_s=1))
    assert recorder.names == ["PhaseStarted", "RunFinished"]
    assert [event.phase for event in recorder.of(PhaseStarted)] == ["connect"]


def test_services_are_complete_and_empty() -> None:
    clock = FakeClock()
    svc = services(clock=clock)
    assert svc.clock is clock
    assert svc.store.list("") == []
    with pytest.raises(Unscripted):
        svc.survey.ask(GPU, Question.of("facts"))


def test_secrets_are_in_no_record() -> None:
    node = FakeNode()
    node.on_program("survey", {})
    node.call(Program("survey", {"a": 1}, secrets={"t": Secret("hf_s3cret")}))
    assert "hf_s3cret" not in repr(node.programs) + json.dumps([dict(p.args) for p in node.programs])
