"""Ask a node all standing questions in one round trip, and keep the answers until something was changed there."""

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
class _Board:
    """What is known about one node. `generation` counts the changes made there."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    answers: Answers = field(default_factory=dict)
    generation: int = 0
    is_gathering: bool = False


@dataclass
class BatchingSurvey:
    """Implements contracts.Survey. `standing` gives the questions that the flow's phases will ask about a node.

    A standing question may depend on an answer (the engine's address on the facts): `standing` may then ask,
    which costs that node one more round trip, once.
    """

    nodes: Nodes
    standing: Callable[[NodeName], Sequence[Question]] = lambda _node: ()
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _boards: dict[NodeName, _Board] = field(default_factory=dict)

    def ask(self, node: NodeName, question: Question) -> Mapping[str, Any]:
        """Raises ProgramFailed when the section refuses, and what the node's connection raises."""
        board = self._board(node)
        with board.lock:
            answer = board.answers.get(question) or self._read(node, board, question)
        refusal = answer.get("refusal")
        if refusal is not None:
            context = {"node": node, **refusal["context"]}
            raise ProgramFailed(what=refusal["what"], why=refusal["why"], fix=refusal["fix"], context=context)
        result: Mapping[str, Any] = answer["answer"]
        return result

    def forget(self, nodes: Sequence[NodeName]) -> None:
        """Never waits for a survey under way: its answers are then simply not kept."""
        for node in nodes:
            board = self._board(node)
            with self._guard:
                board.generation += 1
                board.answers = {}

    def _board(self, node: NodeName) -> _Board:
        with self._guard:
            return self._boards.setdefault(node, _Board())

    def _read(self, node: NodeName, board: _Board, question: Question) -> Mapping[str, Any]:
        wanted = dict.fromkeys([question, *self._gather(node, board)])
        generation = board.generation
        questions = [asked for asked in wanted if asked not in board.answers]
        fresh = self._ask_node(node, questions) if questions else {}
        with self._guard:
            # A change made while we were reading makes these answers too old to keep.
            if board.generation == generation:
                board.answers = {**board.answers, **fresh}
        return fresh.get(question) or board.answers[question]

    def _gather(self, node: NodeName, board: _Board) -> Sequence[Question]:
        if board.is_gathering:  # asked by `standing` itself: answer that one alone
            return ()
        board.is_gathering = True
        try:
            return self.standing(node)
        finally:
            board.is_gathering = False

    def _ask_node(self, node: NodeName, questions: Sequence[Question]) -> Answers:
        program = Program(
            "survey",
            {"questions": [{"section": q.section, "args": q.args} for q in questions]},
            includes=tuple(sorted({f"sections.{q.section}" for q in questions})),
            sudo=True,
            timeout_s=SURVEY_TIMEOUT_S,
        )
        answers = self.nodes[node].call(program)["answers"]
        return dict(zip(questions, answers, strict=True))
