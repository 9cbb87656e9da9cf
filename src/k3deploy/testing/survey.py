"""Answers about nodes by section, told in advance. For a survey over fake nodes, script `FakeNode.answers` instead."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from k3deploy.domain.command import Question
from k3deploy.domain.errors import K3Error
from k3deploy.domain.names import NodeName
from k3deploy.testing.unscripted import Unscripted

Answer = Mapping[str, Any] | K3Error | Callable[[Question], Mapping[str, Any]]


class FakeSurvey:
    """`on(section, answer)` for every node, `on(section, answer, node=...)` for one. `asked` and `forgotten` record."""

    def __init__(self, **answers: Answer) -> None:
        self._answers: dict[tuple[NodeName | None, str], Answer] = {(None, k): v for k, v in answers.items()}
        self.asked: list[tuple[NodeName, Question]] = []
        self.forgotten: list[NodeName] = []

    def on(self, section: str, answer: Answer, *, node: str | None = None) -> None:
        self._answers[None if node is None else NodeName(node), section] = answer

    def ask(self, node: NodeName, question: Question) -> Mapping[str, Any]:
        self.asked.append((node, question))
        answer = self._answers.get((node, question.section), self._answers.get((None, question.section)))
        if answer is None:
            raise Unscripted(f"no answer was scripted for section {question.section!r} on {node}")
        if isinstance(answer, K3Error):
            raise answer
        # Through JSON, as the real answer came: tuples become lists, and what JSON cannot carry fails.
        body: dict[str, Any] = json.loads(json.dumps(answer(question) if callable(answer) else answer))
        return body

    def forget(self, nodes: Sequence[NodeName]) -> None:
        self.forgotten += nodes
