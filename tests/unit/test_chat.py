"""The chat request and the judgement over its answer: each way of being wrong has its own words."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from k3deploy.domain import chat
from k3deploy.domain.chat import Judged, Reply, deadline_s, judge, model_faults, question_of, request

MODEL = "moonshotai/Kimi-K3"

# The published answer of a 32-GPU start, with its counts (109 of 135 completion tokens were thinking), to a question
# whose right answer is known.
QUESTION = "What is 47 * 89? Answer in one short sentence."
PUBLISHED: dict[str, Any] = {
    "model": MODEL,
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": "47 x 89 = 4,183",
                "reasoning_content": "They specify background identity: current assistant is Kimi, developed by "
                "Moonshot AI. Need answer naturally, short sentence. Final only.",
                "tool_calls": None,
            },
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 137, "completion_tokens": 135, "total_tokens": 272, "reasoning_tokens": 109},
}


def judged(
    change: Callable[[dict[str, Any]], None] | None = None, *, status: int = 200, seconds: float = 22.5
) -> Judged:
    body = json.loads(json.dumps(PUBLISHED))
    if change is not None:
        change(body)
    return judge(Reply(status, json.dumps(body), seconds), model_id=MODEL, question=QUESTION)


def test_the_published_answer_counts() -> None:
    found = judged()
    assert found.is_ok
    assert found.answer == "47 x 89 = 4,183"
    assert found.reasoning.startswith("They specify background identity")
    assert (found.prompt_tokens, found.completion_tokens) == (137, 135)
    assert found.tok_per_s == 6.0  # 135 tokens in 22.5 s


def test_the_request_names_its_effort_and_asks_for_enough_tokens() -> None:
    body = request(MODEL, 0)
    assert (body["model"], body["reasoning_effort"]) == (MODEL, "low")
    assert body["max_tokens"] >= 512
    assert question_of(body) == "What is 12 * 12? Answer in one short sentence."


def test_no_two_requests_are_the_same() -> None:
    assert request(MODEL, 1) != request(MODEL, 2)
    assert question_of(request(MODEL, 88)) == "What is 12 * 13? Answer in one short sentence."


def test_the_deadline_follows_the_expected_rate() -> None:
    # 512 tokens at 5.12 tok/s are 100 s; three times that, and two minutes for the first token.
    assert deadline_s(5.12) == pytest.approx(420.0)
    assert deadline_s(51.2) == pytest.approx(150.0)


def message(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["choices"][0]["message"]
    return found


def no_content(body: dict[str, Any]) -> None:
    message(body)["content"] = "  "


def no_reasoning(body: dict[str, Any]) -> None:
    message(body)["reasoning_content"] = None


def thinking_inline(body: dict[str, Any]) -> None:
    message(body)["reasoning_content"] = ""
    message(body)["content"] = "<|think|>47 * 89?<|/think|>4183."


def cut(body: dict[str, Any]) -> None:
    body["choices"][0]["finish_reason"] = "length"
    message(body)["content"] = ""
    body["usage"].update(completion_tokens=512, total_tokens=649, reasoning_tokens=512)


def calls_tools(body: dict[str, Any]) -> None:
    body["choices"][0]["finish_reason"] = "tool_calls"


def other_model(body: dict[str, Any]) -> None:
    body["model"] = "default"


def no_usage(body: dict[str, Any]) -> None:
    del body["usage"]


def no_tokens(body: dict[str, Any]) -> None:
    body["usage"]["completion_tokens"] = 0


def wrong_sum(body: dict[str, Any]) -> None:
    body["usage"]["total_tokens"] = 381  # as if thinking came on top


def too_many(body: dict[str, Any]) -> None:
    body["usage"].update(completion_tokens=600, total_tokens=737)


def more_thinking_than_tokens(body: dict[str, Any]) -> None:
    body["usage"]["reasoning_tokens"] = 200


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (no_content, ["the answer is empty"]),
        (
            no_reasoning,
            ["reasoning_content is empty, and this model always thinks: the engine needs `--reasoning-parser kimi_k3`"],
        ),
        (
            thinking_inline,
            [
                (
                    "reasoning_content is empty, and this model always thinks: its thinking stands in the answer, "
                    "the engine needs `--reasoning-parser kimi_k3`"
                )
            ],
        ),
        (
            cut,
            [
                "the answer is empty: all tokens went into thinking",
                (
                    "finish_reason is length: 512 tokens did not end a sentence at effort low, so the model does not "
                    "find its end (wrong weights, tokenizer or chat encoding)"
                ),
            ],
        ),
        (calls_tools, ["finish_reason is 'tool_calls', not 'stop'"]),
        (other_model, ["the answer is of model 'default', not 'moonshotai/Kimi-K3'"]),
        (no_usage, ["the token counts are not plausible: {}"]),
        (
            no_tokens,
            [
                (
                    'the token counts are not plausible: {"completion_tokens": 0, "prompt_tokens": 137, '
                    '"reasoning_tokens": 109, "total_tokens": 272}'
                )
            ],
        ),
        (wrong_sum, ["total_tokens 381 is not prompt_tokens 137 + completion_tokens 135"]),
        (too_many, ["completion_tokens 600 is more than the 512 that were allowed"]),
        (
            more_thinking_than_tokens,
            ["reasoning_tokens 200 is more than completion_tokens 135, which include them"],
        ),
    ],
)
def test_each_fault_has_its_own_words(change: Callable[[dict[str, Any]], None], faults: list[str]) -> None:
    assert list(judged(change).faults) == faults


@pytest.mark.parametrize("content", ["4183", "It is 4,183.", "47 * 89 = 4\u202f183!", "The product is **4183**."])
def test_the_right_number_counts_however_it_is_written(content: str) -> None:
    assert judged(lambda body: message(body).update(content=content)).is_ok


@pytest.mark.parametrize("content", ["4184", "41,83", "I think it is 418.", "Hello! I'm Kimi.", "14183"])
def test_a_wrong_answer_is_told(content: str) -> None:
    found = judged(lambda body: message(body).update(content=content))
    assert found.faults == (f"the answer is wrong: {QUESTION!r} has 4183, the model said {content!r}",)


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (503, "", "the API answered HTTP 503: "),
        (400, '{"message": "Messages cannot be empty."}', "the API answered HTTP 400: "),
        (200, "<html>a proxy</html>", "the answer is not a chat completion: <html>a proxy</html>"),
        (200, '{"choices": []}', "the answer is not a chat completion: "),
        (200, '"text"', "the answer is not a chat completion: "),
    ],
)
def test_an_answer_that_is_none_is_shown(status: int, body: str, fault: str) -> None:
    found = judge(Reply(status, body, 1.0), model_id=MODEL, question=QUESTION)
    assert len(found.faults) == 1
    assert found.faults[0].startswith(fault)


def test_several_faults_are_all_told() -> None:
    def spoil(body: dict[str, Any]) -> None:
        other_model(body)
        no_content(body)
        wrong_sum(body)

    assert len(judged(spoil).faults) == 3


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (200, {"data": [{"id": MODEL, "max_model_len": 1_048_576}]}, None),
        (200, {"data": [{"id": "x", "max_model_len": 1_048_576}]}, f"/v1/models lists x, not {MODEL}"),
        (200, {"data": []}, f"/v1/models lists nothing, not {MODEL}"),
        (
            200,
            {"data": [{"id": MODEL, "max_model_len": 131_072}]},
            "/v1/models says max_model_len 131072, the profile says 1048576",
        ),
        (401, {"error": "Unauthorized"}, '/v1/models answered HTTP 401: {"error": "Unauthorized"}'),
        (200, [], "/v1/models did not answer a list of models: []"),
    ],
)
def test_the_list_of_models_is_judged(status: int, body: object, fault: str | None) -> None:
    found = model_faults(status, json.dumps(body), model_id=MODEL, context_tokens=1_048_576)
    assert found == (() if fault is None else (fault,))


def test_a_kept_reply_is_judged_as_it_was() -> None:
    reply = Reply(200, json.dumps(PUBLISHED), 22.5)
    again = Reply.from_dict(json.loads(json.dumps(reply.as_dict())))
    assert judge(again, model_id=MODEL, question=QUESTION) == judged()


def test_the_limit_of_tokens_is_the_one_that_is_asked_for() -> None:
    assert request(MODEL, 7)["max_tokens"] == chat.MAX_TOKENS
