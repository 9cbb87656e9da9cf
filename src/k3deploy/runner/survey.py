"""Ask a node all standing questions in one round trip, and keep the answers until something was changed there."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from k3deploy.contracts import Nodes
from k3deploy.domain.command import Program, Question
from k3deploy.domain.errors import ProgramFailed
from k3deploy.domain.names import NodeName

SURVEY_TIMEOUT_S = 60.0

Answers = dict[Question, Mapping[str, Any]]


@dataclass
class BatchingSurvey:
    """Implements contracts.Survey. `standing` gives the questions that the flow's phases will ask about a node."""

    nodes: Nodes
    standing: Callable[[NodeName], Sequence[Question]] = lambda _node: ()
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _locks: dict[NodeName, threading.Lock] = field(default_factory=dict)
    _answers: dict[NodeName, Answers] = field(default_factory=dict)
    _generation: dict[NodeName, int] = field(default_factory=dict)

    def ask(self, node: NodeName, question: Question) -> Mapping[str, Any]:
        """Raises ProgramFailed when the section refuses, and what the node's connection raises."""
        with self._guard:
            lock = self._locks.setdefault(node, threading.Lock())
        with lock:
            known = self._answers.get(node, {})
            if question not in known:
                generation = self._generation.get(node, 0)
                wanted = [question, *(q for q in self.standing(node) if q not in known and q != question)]
                fresh = self._ask_node(node, list(dict.fromkeys(wanted)))
                with self._guard:
                    # A change made while we were reading makes these answers too old to keep.
                    if self._generation.get(node, 0) == generation:
                        self._answers[node] = {**known, **fresh}
                known = fresh
            answer = known[question]
        refusal = answer.get("refusal")
        if refusal is not None:
            context = {"node": node, **refusal["context"]}
            raise ProgramFailed(what=refusal["what"], why=refusal["why"], fix=refusal["fix"], context=context)
        result: Mapping[str, Any] = answer["answer"]
        return result

    def forget(self, nodes: Sequence[NodeName]) -> None:
        with self._guard:
            for node in nodes:
                self._answers.pop(node, None)
                self._generation[node] = self._generation.get(node, 0) + 1

    def _ask_node(self, node: NodeName, questions: Sequence[Question]) -> Answers:
        program = Program(
            "survey",
            {"questions": [{"section": q.section, "args": json.loads(q.args_json)} for q in questions]},
            includes=tuple(sorted({f"sections.{q.section}" for q in questions})),
            sudo=True,
            timeout_s=SURVEY_TIMEOUT_S,
        )
        answers = self.nodes[node].call(program)["answers"]
        return dict(zip(questions, answers, strict=True))
