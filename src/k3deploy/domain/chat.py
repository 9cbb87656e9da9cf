"""One real chat request and what makes its answer count: pure, so that a stored answer can be judged again.

Kimi K3 always thinks; `reasoning_effort` is low, high or max, and max when unset, so it is always sent. The thinking
comes in `reasoning_content` when the engine runs with `--reasoning-parser kimi_k3`, and counts as completion tokens.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

EFFORT: Final = "low"
MAX_TOKENS: Final = 512
_PRODUCT: Final = re.compile(r"(\d+) \* (\d+)")
_NUMBER: Final = re.compile(r"\d{1,3}(?:[,\u2009\u00a0\u202f ]\d{3})+|\d+")
# The first request of a fresh engine compiles kernels and fills caches before its first token.
_FIRST_TOKEN_S: Final = 120.0
# Measured rates differ by this much between nodes of the same kind and hours of the day.
_RATE_MARGIN: Final = 3.0


def deadline_s(decode_tok_per_s: float) -> float:
    """How long the answer may take at the profile's expected rate, when it uses all its tokens."""
    return _FIRST_TOKEN_S + _RATE_MARGIN * MAX_TOKENS / decode_tok_per_s


def request(model_id: str, seed: int) -> dict[str, Any]:
    """Body of POST /v1/chat/completions: a product whose digits are known here, so that a wrong answer shows.

    `seed` chooses the factors, two numbers of two digits, so that no cache answers for the engine.
    """
    left, right = 12 + seed % 88, 12 + seed // 88 % 88
    return {
        "model": model_id,
        "messages": [{"role": "user", "content": f"What is {left} * {right}? Answer in one short sentence."}],
        "reasoning_effort": EFFORT,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "stream": False,
    }


@dataclass(frozen=True)
class Reply:
    """An answer as it came: HTTP status, body as text, and seconds until it was complete."""

    status: int
    body: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return {"status": self.status, "body": self.body, "seconds": self.seconds}

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> "Reply":
        return Reply(int(stored["status"]), str(stored["body"]), float(stored["seconds"]))


@dataclass(frozen=True)
class Judged:
    """`faults`: each with its own words; empty when the answer counts."""

    faults: tuple[str, ...]
    answer: str = ""
    reasoning: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tok_per_s: float | None = None

    @property
    def is_ok(self) -> bool:
        return not self.faults


def question_of(body: Mapping[str, Any]) -> str:
    """What a request asked."""
    text: str = body["messages"][0]["content"]
    return text


def product_of(question: str) -> int:
    """The right answer to a question of `request`. Raises ValueError for another question."""
    found = _PRODUCT.search(question)
    if found is None:
        raise ValueError(f"not a question of ours: {question!r}")
    return int(found[1]) * int(found[2])


def judge(reply: Reply, *, model_id: str, question: str) -> Judged:
    """Everything that is wrong with the answer to a question of `request`, not the first thing."""
    if reply.status != 200:
        return Judged((f"the API answered HTTP {reply.status}: {_short(reply.body)}",))
    try:
        body = json.loads(reply.body)
        choice = body["choices"][0]
        message = choice["message"]
        finish_reason = choice["finish_reason"]
    except (ValueError, KeyError, IndexError, TypeError):
        return Judged((f"the answer is not a chat completion: {_short(reply.body)}",))
    content, reasoning = _text(message, "content"), _text(message, "reasoning_content")
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    completion = _count(usage, "completion_tokens")
    faults = [
        *_model_faults(body, model_id),
        *_text_faults(content, reasoning, finish_reason),
        *_product_faults(content, question),
        *_finish_faults(finish_reason),
        *_usage_faults(usage),
    ]
    rate = completion / reply.seconds if completion and reply.seconds > 0 else None
    return Judged(
        tuple(faults),
        content.strip(),
        reasoning.strip(),
        _count(usage, "prompt_tokens"),
        completion,
        None if rate is None else round(rate, 2),
    )


def _model_faults(body: Mapping[str, Any], model_id: str) -> list[str]:
    found = body.get("model")
    return [] if found == model_id else [f"the answer is of model {found!r}, not {model_id!r}"]


def _text_faults(content: str, reasoning: str, finish_reason: object) -> list[str]:
    faults = []
    if not content.strip():
        cut = finish_reason == "length"
        faults.append("the answer is empty" + (": all tokens went into thinking" if cut else ""))
    if not reasoning.strip():
        inline = "<|think|>" in content or "<think>" in content
        faults.append(
            "reasoning_content is empty, and this model always thinks: "
            + ("its thinking stands in the answer, " if inline else "")
            + "the engine needs `--reasoning-parser kimi_k3`"
        )
    return faults


def _product_faults(content: str, question: str) -> list[str]:
    """4183, 4,183 and 4 183 are the same number; an empty answer is told elsewhere."""
    wanted = product_of(question)
    numbers = {int(re.sub(r"\D", "", found)) for found in _NUMBER.findall(content)}
    if not content.strip() or wanted in numbers:
        return []
    return [f"the answer is wrong: {question!r} has {wanted}, the model said {_short(content)!r}"]


def _finish_faults(finish_reason: object) -> list[str]:
    if finish_reason == "stop":
        return []
    if finish_reason == "length":
        cause = "the model does not find its end (wrong weights, tokenizer or chat encoding)"
        return [f"finish_reason is length: {MAX_TOKENS} tokens did not end a sentence at effort {EFFORT}, so {cause}"]
    return [f"finish_reason is {finish_reason!r}, not 'stop'"]


def _usage_faults(usage: Mapping[str, Any]) -> list[str]:
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    total, thinking = _count(usage, "total_tokens"), _count(usage, "reasoning_tokens")
    if not prompt or not completion or total is None:
        return [f"the token counts are not plausible: {json.dumps(dict(usage), sort_keys=True)}"]
    faults = []
    if total != prompt + completion:
        faults.append(f"total_tokens {total} is not prompt_tokens {prompt} + completion_tokens {completion}")
    if completion > MAX_TOKENS:
        faults.append(f"completion_tokens {completion} is more than the {MAX_TOKENS} that were allowed")
    if thinking is not None and thinking > completion:
        faults.append(f"reasoning_tokens {thinking} is more than completion_tokens {completion}, which include them")
    return faults


def model_faults(status: int, body: str, *, model_id: str, context_tokens: int | None) -> tuple[str, ...]:
    """What is wrong with the answer of GET /v1/models. `context_tokens` None: any max_model_len will do."""
    if status != 200:
        return (f"/v1/models answered HTTP {status}: {_short(body)}",)
    try:
        lengths = {card["id"]: card.get("max_model_len") for card in json.loads(body)["data"]}
    except (ValueError, KeyError, TypeError):
        return (f"/v1/models did not answer a list of models: {_short(body)}",)
    if model_id not in lengths:
        return (f"/v1/models lists {', '.join(map(str, lengths)) or 'nothing'}, not {model_id}",)
    if context_tokens is not None and lengths[model_id] != context_tokens:
        return (f"/v1/models says max_model_len {lengths[model_id]}, the profile says {context_tokens}",)
    return ()


def _text(message: Mapping[str, Any], name: str) -> str:
    found = message.get(name)
    return found if isinstance(found, str) else ""


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    found = usage.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 200 else f"{flat[:197]}..."
