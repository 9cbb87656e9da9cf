"""What the stand-in says: short right answers to the questions that people test a model with, and its thinking."""

import ast
import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

EFFORTS = ("low", "high", "max")
_THINKING_TOKENS = {"low": 54, "high": 184, "max": 212}
_ARITHMETIC = re.compile(r"-?\d+(?:\.\d+)?(?:\s*[-+*/x×]\s*-?\d+(?:\.\d+)?)+")
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_QUOTED = re.compile(r"""(?:exactly|only|word|repeat|say|write|reply with)[^"'`]*["'`]([^"'`]+)["'`]""", re.IGNORECASE)
_REPLY = re.compile(r"(?:reply|answer|respond) with (?:exactly|only|just|the word):?\s+(\S+)", re.IGNORECASE)


@dataclass
class Answer:
    """One finished generation, before it is cut to the request's limit."""

    reasoning: str
    content: str
    reasoning_tokens: int
    content_tokens: int
    prompt_tokens: int
    image_tokens: int = 0
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str = "stop"

    def limit(self, max_tokens: int | None) -> None:
        """Stop after so many tokens: thinking counts, so a small limit ends before any answer."""
        if max_tokens is None or self.reasoning_tokens + self.content_tokens <= max_tokens:
            return
        self.finish_reason = "length"
        self.tool_calls = []
        if max_tokens <= self.reasoning_tokens:
            self.reasoning = _first_words(self.reasoning, max_tokens / self.reasoning_tokens)
            self.reasoning_tokens, self.content_tokens, self.content = max_tokens, 0, ""
            return
        left = max_tokens - self.reasoning_tokens
        self.content = _first_words(self.content, left / self.content_tokens)
        self.content_tokens = left


def _first_words(text: str, part: float) -> str:
    words = text.split(" ")
    return " ".join(words[: max(1, int(len(words) * part))])


def tokens(text: str) -> int:
    """About four characters a token, as good as a guess needs to be."""
    return max(1, len(text) // 4)


def prompt_text(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """The text of all messages, and how many images there are."""
    texts, images = [], 0
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, str):
            texts.append(content)
            continue
        for part in content:
            if part.get("type") == "text":
                texts.append(part["text"])
            elif part.get("type") == "image_url":
                images += 1
    return "\n".join(texts), images


def answer(messages: list[dict[str, Any]], effort: str, tools: list[dict[str, Any]]) -> Answer:
    """The answer to the last user message."""
    text, images = prompt_text(messages)
    question, _ = prompt_text([m for m in messages if m.get("role") == "user"][-1:])
    has_results = messages[-1].get("role") == "tool"
    calls = [] if has_results else _tool_calls(question, tools)
    content = "" if calls else _content(question, messages, images, has_results=has_results)
    reasoning = f"The user says: {question[:120]!r}. Work it out, check it, answer briefly. " + "Think it through. " * 4
    reply = Answer(
        reasoning=reasoning.strip(),
        content=content,
        reasoning_tokens=_THINKING_TOKENS[effort],
        content_tokens=tokens(content or json.dumps(calls)),
        prompt_tokens=tokens(text) + 128 + 25 * images,
        image_tokens=25 * images,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
    )
    if "who are you" in question.lower() and effort == "max":
        reply.reasoning_tokens, reply.content_tokens, reply.prompt_tokens = 109, 26, 137
    return reply


def _content(question: str, messages: list[dict[str, Any]], images: int, *, has_results: bool) -> str:
    if has_results:
        results = [f"- {m.get('name', 'tool')}: {m.get('content')}" for m in messages if m.get("role") == "tool"]
        return "Here are the results:\n\n" + "\n".join(results)
    if images:
        return "The image shows two solid color blocks: the left half is red and the right half is blue."
    if match := _QUOTED.search(question) or _REPLY.search(question):
        return match[1].strip(".")
    if (value := _calculate(question)) is not None:
        return f"{value}"
    lowered = question.lower()
    if "who are you" in lowered:
        return "Hello! I'm Kimi, an AI assistant developed by Moonshot AI."
    if "capital of france" in lowered or "capital city of france" in lowered:
        return "Paris."
    if "ana pays twice" in lowered:
        return "Cara pays 8.50, Ben 11.50, Ana 23.00."
    return f"You asked: {question[:200]}"


def _calculate(question: str) -> int | float | None:
    match = _ARITHMETIC.search(question)
    if match is None:
        return None
    text = match[0].replace("×", "*").replace("x", "*")
    try:
        value = _evaluate(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None
    return int(value) if value == int(value) else value


def _evaluate(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    raise ValueError(ast.dump(node))


def _tool_calls(question: str, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One call for each offered tool that the question seems to need, all in the same turn."""
    calls: list[dict[str, Any]] = []
    for tool in tools:
        function = tool.get("function", {})
        parameters = function.get("parameters") or {}
        required = parameters.get("required") or list(parameters.get("properties", {}))
        values = {name: _argument(name, question) for name in required}
        if any(value is None for value in values.values()):
            continue
        calls.append(
            {
                "id": f"functions.{function.get('name')}:{len(calls)}",
                "index": len(calls),
                "type": "function",
                "function": {"name": function.get("name"), "arguments": json.dumps(values)},
            }
        )
    return calls


def _argument(name: str, question: str) -> str | None:
    if name == "expression":
        match = _ARITHMETIC.search(question)
        return match[0].replace(" ", "") if match else None
    match = re.search(r"\bin ([A-Z][A-Za-z]+)", question)
    return match[1] if match else None
