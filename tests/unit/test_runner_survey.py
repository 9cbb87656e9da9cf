"""One round trip per node, and no answer older than the last change."""

import pytest

from k3deploy.domain.command import Question
from k3deploy.domain.errors import ProgramFailed
from k3deploy.domain.names import NodeName
from k3deploy.runner.survey import BatchingSurvey
from k3deploy.testing import FakeNodes

GPU = NodeName("gpu-00")
ONE, TWO = Question.of("docker", ref="x"), Question.of("facts")


def _survey(*standing: Question) -> tuple[BatchingSurvey, FakeNodes]:
    nodes = FakeNodes("gpu-00")
    nodes[GPU].answers = {"docker": lambda args: {"echo": args}, "facts": {"os": "debian"}}
    return BatchingSurvey(nodes, lambda _node: standing), nodes


def test_standing_questions_go_out_with_the_first_one() -> None:
    survey, nodes = _survey(ONE, TWO)
    assert survey.ask(GPU, TWO) == {"os": "debian"}
    assert survey.ask(GPU, ONE) == {"echo": {"ref": "x"}}
    assert len(nodes[GPU].programs) == 1
    assert nodes[GPU].programs[0].includes == ("sections.docker", "sections.facts")
    assert nodes[GPU].programs[0].sudo


def test_a_change_makes_the_answers_void() -> None:
    survey, nodes = _survey()
    survey.ask(GPU, TWO)
    nodes[GPU].answers["facts"] = {"os": "ubuntu"}
    assert survey.ask(GPU, TWO) == {"os": "debian"}
    survey.forget([GPU])
    assert survey.ask(GPU, TWO) == {"os": "ubuntu"}


def test_an_answer_read_while_something_changed_is_given_but_not_kept() -> None:
    survey, nodes = _survey()

    def changing(args: dict[str, object]) -> dict[str, object]:
        survey.forget([GPU])
        return {"os": "old"}

    nodes[GPU].answers["facts"] = changing
    assert survey.ask(GPU, TWO) == {"os": "old"}
    nodes[GPU].answers["facts"] = {"os": "new"}
    assert survey.ask(GPU, TWO) == {"os": "new"}


def test_a_section_that_refuses_names_the_node_and_hides_nothing_else() -> None:
    survey, nodes = _survey(ONE, TWO)
    nodes[GPU].answers["docker"] = ProgramFailed(what="no docker", why="not installed", fix="install it")
    with pytest.raises(ProgramFailed, match="no docker") as caught:
        survey.ask(GPU, ONE)
    assert caught.value.context["node"] == GPU
    assert survey.ask(GPU, TWO) == {"os": "debian"}


def test_a_standing_question_may_depend_on_an_answer() -> None:
    nodes = FakeNodes("gpu-00")
    nodes[GPU].answers = {"docker": lambda args: {"echo": args}, "facts": {"address": "10.0.0.5"}}
    survey = BatchingSurvey(nodes)
    survey.standing = lambda node: [TWO, Question.of("docker", at=survey.ask(node, TWO)["address"])]
    assert survey.ask(GPU, Question.of("docker", at="10.0.0.5")) == {"echo": {"at": "10.0.0.5"}}
    assert [len(program.args["questions"]) for program in nodes[GPU].programs] == [1, 1]
    assert survey.ask(GPU, TWO) == {"address": "10.0.0.5"}
    assert len(nodes[GPU].programs) == 2
