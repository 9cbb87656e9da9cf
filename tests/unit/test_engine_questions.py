"""A run with nothing to do costs one round trip a node: what verify asks is what the phase has announced."""

from typing import Any

import pytest

from k3deploy.contracts import HttpResponse
from k3deploy.domain.holdings import TeardownOptions
from k3deploy.flows.teardown import teardown_phases
from k3deploy.phases.chat import ChatPhase
from k3deploy.phases.launch import LaunchPhase
from k3deploy.phases.ready import ReadyPhase
from k3deploy.runner.graph import AnyPhase
from k3deploy.testing import FakeSurvey

from .engine_world import World, run_phase, world
from .test_chat_phase import MODELS, RIGHT, URL, respond
from .test_ready_phase import said, start_lines
from .test_teardown import ALL, session, torn_down


def answered() -> World:
    """From nothing to an answer."""
    w = world()
    run_phase(w, LaunchPhase(w.site))
    for rank, name in enumerate(w.names):
        said(w, str(name), start_lines(rank, "ready" if rank == 0 else "graphs"))
    run_phase(w, ReadyPhase(w.site))
    w.svc.http.on("GET", f"{URL}/v1/models", respond(MODELS))  # type: ignore[attr-defined]
    answer: HttpResponse = respond(RIGHT)  # the clock has not moved, so this is what is asked
    w.svc.http.on("POST", f"{URL}/v1/chat/completions", answer)  # type: ignore[attr-defined]
    run_phase(w, ChatPhase(w.site))
    return w


def asks_as_announced(w: World, phase: AnyPhase) -> None:
    survey: Any = w.svc.survey
    assert isinstance(survey, FakeSurvey)
    for target in phase.targets():
        announced = phase.questions(w.svc, target)
        survey.asked.clear()
        phase.inputs(w.svc, target)
        assert phase.verify(w.svc, target).is_ok
        asked = set(survey.asked)
        assert asked <= {(node, question) for node, questions in announced.items() for question in questions}


@pytest.mark.parametrize("kind", [LaunchPhase, ReadyPhase, ChatPhase])
def test_up(kind: Any) -> None:
    w = answered()
    asks_as_announced(w, kind(w.site))


@pytest.mark.parametrize("options", [TeardownOptions(), ALL])
def test_teardown(options: TeardownOptions) -> None:
    w = world()
    for machine in w.machines.values():
        machine.gpu_used_mib = 0
    torn_down(w, options)
    for phase in teardown_phases(session(w), options):
        asks_as_announced(w, phase)
