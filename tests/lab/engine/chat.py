"""`/v1/chat/completions`: from a request body to the engine's JSON or its event stream."""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from . import log
from .answers import EFFORTS, Answer, answer, prompt_text, tokens
from .launch import Launch
from .mischief import Mischief
from .numbers import Numbers


class BadRequest(Exception):
    """The client's fault; `status` 400."""


def generate(body: dict[str, Any], launch: Launch, numbers: Numbers, mischief: Mischief, context_len: int) -> Answer:
    """The answer to one request, shaped by the parsers that the launch chose."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("Messages cannot be empty.")
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise BadRequest(f"max_completion_tokens must be at least 1, got {limit}.")
    _check_length(messages, limit, numbers, context_len)
    reply = answer(messages, _effort(body), body.get("tools") or [])
    if mischief["wrong_answer"]:
        reply.content = "I am a language model, and I don't know." if not reply.tool_calls else ""
    if mischief["empty_content"]:
        reply.content = ""
    reply.limit(limit)
    return _parsed(reply, launch, mischief)


def _check_length(messages: list[dict[str, Any]], limit: int | None, numbers: Numbers, context_len: int) -> None:
    length = tokens(prompt_text(messages)[0])
    longest = min(context_len, numbers.kv_tokens) - 6
    if length > longest:
        raise BadRequest(
            f"Input length ({length} tokens) exceeds the maximum allowed length ({longest} tokens). "
            "Use a shorter input or enable --allow-auto-truncate."
        )
    if limit is not None and length + limit > context_len:
        raise BadRequest(
            f"Requested token count exceeds the model's maximum context length of {context_len} tokens. "
            f"You requested a total of {length + limit} tokens: {length} tokens from the input messages and {limit} "
            "tokens for the completion. Please reduce the number of tokens in the input messages or the completion "
            "to fit within the limit."
        )


def _effort(body: dict[str, Any]) -> str:
    asked = body.get("reasoning_effort")
    if asked is None:
        asked = (body.get("chat_template_kwargs") or {}).get("thinking_effort")
    if asked is None or asked in EFFORTS:
        return str(asked or "max")
    log.line(f"Kimi K3 supports thinking_effort low/high/max; ignoring reasoning_effort={asked!r}.")
    return "max"


def _parsed(reply: Answer, launch: Launch, mischief: Mischief) -> Answer:
    """A parser of another model leaves the thinking, or the tool calls, in the text."""
    if launch.args.tool_call_parser not in ("kimi_k3", "auto") and reply.tool_calls:
        reply.content = "".join(f"<|tool_call|>{json.dumps(call['function'])}" for call in reply.tool_calls)
        reply.tool_calls, reply.finish_reason = [], "stop"
    if launch.args.reasoning_parser not in ("kimi_k3", "auto"):
        reply.content = f"<|think|>{reply.reasoning}<|/think|>{reply.content}"
        reply.reasoning, reply.reasoning_tokens, reply.content_tokens = (
            "",
            0,
            reply.content_tokens + reply.reasoning_tokens,
        )
    if mischief["empty_reasoning"]:
        reply.reasoning, reply.reasoning_tokens = "", 0
    return reply


def usage(reply: Answer) -> dict[str, Any]:
    """Token counts; the thinking is part of the completion."""
    completion = reply.reasoning_tokens + reply.content_tokens
    counts: dict[str, Any] = {
        "prompt_tokens": reply.prompt_tokens,
        "total_tokens": reply.prompt_tokens + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "reasoning_tokens": reply.reasoning_tokens,
    }
    if reply.image_tokens:
        counts["prompt_tokens_details"] = {"cached_tokens": 0, "image_tokens": reply.image_tokens}
    return counts


def completion(reply: Answer, model: str) -> dict[str, Any]:
    """The whole response."""
    return {
        "id": uuid.uuid4().hex,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": reply.content or None,
                    "reasoning_content": reply.reasoning or None,
                    "tool_calls": reply.tool_calls or None,
                },
                "logprobs": None,
                "finish_reason": reply.finish_reason,
                "matched_stop": 163586 if reply.finish_reason == "stop" else None,
            }
        ],
        "usage": usage(reply),
        "metadata": {"weight_version": "default"},
    }


def stream(reply: Answer, model: str, *, with_usage: bool) -> Iterator[str]:
    """The response as server-sent events: role, thinking, answer, tool calls, reason, usage, the end mark."""
    head = {"id": uuid.uuid4().hex, "object": "chat.completion.chunk", "created": int(time.time()), "model": model}

    def event(delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason, "matched_stop": None}
        return f"data: {json.dumps({**head, 'choices': [choice], 'usage': None})}\n\n"

    yield event({"role": "assistant", "content": ""})
    for piece in _pieces(reply.reasoning):
        yield event({"reasoning_content": piece})
    for piece in _pieces(reply.content):
        yield event({"content": piece})
    for call in reply.tool_calls:
        yield event({"tool_calls": [call]})
    yield event({}, reply.finish_reason)
    if with_usage:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': usage(reply)})}\n\n"
    yield "data: [DONE]\n\n"


def _pieces(text: str) -> Iterator[str]:
    words = text.split(" ") if text else []
    for first in range(0, len(words), 4):
        yield " ".join(words[first : first + 4]) + (" " if first + 4 < len(words) else "")
