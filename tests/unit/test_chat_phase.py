"""Chat: one real request through the head, kept with the containers that answered it, asked again only for new ones."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from k3deploy.contracts import HttpResponse
from k3deploy.domain import events as ev
from k3deploy.domain.errors import EngineError
from k3deploy.phases.chat import ChatPhase
from k3deploy.phases.launch import LaunchPhase
from k3deploy.runner.unit import Ended
from k3deploy.testing import FakeHttp
from k3deploy.testing.http import Request

from .engine_world import FOLDER, World, run_phase, world
from .test_chat import MODEL, PUBLISHED

URL = "http://10.0.0.1:8000"
MODELS = {"data": [{"id": MODEL, "max_model_len": 1_048_576}]}


def respond(body: object, status: int = 200) -> HttpResponse:
    return HttpResponse(status, {}, json.dumps(body).encode())


# What the fake clock's moment makes of the question, and its right answer.
ASKED = "What is 60 * 58? Answer in one short sentence."
RIGHT = json.loads(json.dumps(PUBLISHED).replace("47 x 89 = 4,183", "60 * 58 = 3480"))


def ready(answer: object = RIGHT, *, is_public: bool = False, models: Mapping[str, Any] = MODELS) -> World:
    w = world(is_public=is_public)
    run_phase(w, LaunchPhase(w.site))
    w["gpu-01"].files[f"{FOLDER}/ready.json"] = {"sentence": "the KV pool holds one request of at most 140,352 tokens"}
    http = FakeHttp()
    http.on("GET", f"{URL}/v1/models", respond(models))
    if isinstance(answer, EngineError):
        http.on("POST", f"{URL}/v1/chat/completions", answer)
    else:

        def slow(asked: Request) -> HttpResponse:
            w.clock.advance(22.5)
            left, right = re.findall(r"\d+", json.loads(asked.body or b"")["messages"][0]["content"])
            said = json.dumps(answer).replace("60 * 58 = 3480", f"{left} * {right} = {int(left) * int(right)}")
            return respond(json.loads(said))

        http.on("POST", f"{URL}/v1/chat/completions", slow)
    w.svc = type(w.svc)(**{**vars(w.svc), "http": http})
    return w


def requests(w: World) -> list[Request]:
    http = w.svc.http
    assert isinstance(http, FakeHttp)
    return http.requests


def test_a_real_request_goes_to_the_head_through_its_own_node() -> None:
    w = ready()
    ended, recorder = run_phase(w, ChatPhase(w.site))
    assert ended == [Ended.CHANGED]
    models, asked = requests(w)
    assert (models.method, asked.method) == ("GET", "POST")
    assert {models.via, asked.via} == {"gpu-01"}
    body = json.loads(asked.body or b"")
    assert (body["model"], body["reasoning_effort"], body["max_tokens"]) == (MODEL, "low", 512)
    # 512 tokens at 5.8 tok/s, three times, and two minutes for the first one.
    assert asked.timeout_s == pytest.approx(120 + 3 * 512 / 5.8)
    evidence = recorder.of(ev.Verified)[0].evidence
    assert evidence["endpoint"] == f"{URL}/v1"
    assert evidence["question"] == ASKED
    assert evidence["answer"] == "60 * 58 = 3480"
    assert evidence["speed"] == "6 tok/s: 135 tokens, thinking included, in 22 s"
    assert evidence["context"] == "the KV pool holds one request of at most 140,352 tokens"
    assert "key_file" not in evidence


def test_a_second_run_sends_no_request_and_tells_the_same() -> None:
    w = ready()
    _, first = run_phase(w, ChatPhase(w.site))
    ended, second = run_phase(w, ChatPhase(w.site))
    assert ended == [Ended.UNCHANGED]
    assert len(requests(w)) == 2
    assert second.of(ev.Verified)[0].evidence == first.of(ev.Verified)[0].evidence


def test_other_containers_are_asked_again() -> None:
    w = ready()
    run_phase(w, ChatPhase(w.site))
    lost = w["gpu-04"].container
    assert lost is not None
    lost.status = "exited"
    run_phase(w, LaunchPhase(w.site))
    ended, _ = run_phase(w, ChatPhase(w.site))
    assert ended == [Ended.CHANGED]
    assert [request.method for request in requests(w)] == ["GET", "POST", "GET", "POST"]


def test_a_kept_answer_does_not_hide_an_engine_that_is_ill_now() -> None:
    w = ready()
    run_phase(w, ChatPhase(w.site))
    w["gpu-01"].health = 503
    verdict = ChatPhase(w.site).verify(w.svc, ChatPhase(w.site).targets()[0])
    assert not verdict.is_ok
    assert verdict.summary == "gpu-01: /health answers 503"


def test_a_kept_answer_is_judged_again() -> None:
    w = ready()
    run_phase(w, ChatPhase(w.site))
    kept = w["gpu-01"].files[f"{FOLDER}/chat.json"]
    kept["reply"]["body"] = kept["reply"]["body"].replace('"stop"', '"length"')
    verdict = ChatPhase(w.site).verify(w.svc, ChatPhase(w.site).targets()[0])
    assert not verdict.is_ok
    assert verdict.summary.startswith("finish_reason is length")


def test_a_wrong_answer_fails_with_all_that_is_wrong_and_keeps_nothing() -> None:
    wrong = json.loads(json.dumps(RIGHT))
    wrong["choices"][0]["message"]["reasoning_content"] = None
    wrong["model"] = "default"
    w = ready(wrong)
    with pytest.raises(EngineError) as caught:
        run_phase(w, ChatPhase(w.site))
    assert caught.value.what == "serve-0: the answer is of model 'default', not 'moonshotai/Kimi-K3'"
    assert "reasoning_content is empty" in caught.value.why
    assert f"{FOLDER}/chat.json" not in w["gpu-01"].files


def test_a_wrong_model_is_found_before_the_question() -> None:
    w = ready(models={"data": [{"id": MODEL, "max_model_len": 32_768}]})
    with pytest.raises(EngineError, match="max_model_len 32768"):
        run_phase(w, ChatPhase(w.site))
    assert [request.method for request in requests(w)] == ["GET"]


def test_no_answer_names_the_rank_that_is_down() -> None:
    w = ready(EngineError(what="x", why="no complete answer within 385 s", fix="y"))
    lost = w["gpu-03"].container
    assert lost is not None
    lost.status, lost.exit_code = "exited", 137
    with pytest.raises(EngineError) as caught:
        run_phase(w, ChatPhase(w.site))
    assert caught.value.what == "serve-0: the question was not answered (no complete answer within 385 s)"
    assert caught.value.why == "rank 2 on gpu-03 exited with code 137"


def test_no_answer_of_an_engine_that_seems_well_points_to_its_speed() -> None:
    w = ready(EngineError(what="x", why="no complete answer within 385 s", fix="y"))
    with pytest.raises(EngineError) as caught:
        run_phase(w, ChatPhase(w.site))
    assert caught.value.why == "a rank hangs, or the engine is slower than expect.decode_tok_per_s (5.8)"


def test_a_public_api_is_asked_with_its_key_which_is_nowhere_else() -> None:
    w = ready(is_public=True)
    ended, recorder = run_phase(w, ChatPhase(w.site))
    assert ended == [Ended.CHANGED]
    key = w["gpu-01"].files[f"{FOLDER}/engine.yaml"].split('"')[1]
    assert [request.headers["Authorization"] for request in requests(w)] == [f"Bearer {key}"] * 2
    evidence = recorder.of(ev.Verified)[0].evidence
    assert evidence["key_file"] == f"gpu-01:{FOLDER}/engine.yaml"
    assert key not in repr(recorder.events)
    assert key not in json.dumps(w["gpu-01"].files[f"{FOLDER}/chat.json"])
    assert key not in repr([w.svc.store.get(name) for name in w.svc.store.list("")])
