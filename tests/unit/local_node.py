"""Nodes that are folders of this machine: programs really run, by a python3 of their own, and sent files are kept."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from k3deploy.adapters.bundle import script
from k3deploy.domain.command import Command, CommandResult, Program, Question
from k3deploy.domain.errors import Bug, K3Error, ProgramFailed
from k3deploy.domain.names import NodeName
from k3deploy.testing import Put


class LocalNode:
    """Implements contracts.Node, as root without a connection. `error` set makes every call fail with it."""

    def __init__(self, name: str) -> None:
        self._name = NodeName(name)
        self.puts: list[Put] = []
        self.programs: list[Program] = []
        self.error: K3Error | None = None

    @property
    def name(self) -> NodeName:
        return self._name

    def run(self, command: Command) -> CommandResult:
        raise AssertionError(f"the weights need no command, not {command.argv}")

    def call(self, program: Program) -> Mapping[str, Any]:
        *_, last = self.follow(program)
        result: Mapping[str, Any] = last["result"]
        return result

    def follow(self, program: Program) -> Iterator[Mapping[str, Any]]:
        if self.error is not None:
            raise self.error
        self.programs.append(program)
        secrets = {name: secret.reveal() for name, secret in program.secrets.items()}
        text = script(program.entry, {**program.args, "secrets": secrets}, program.includes)
        with subprocess.Popen(
            [sys.executable, "-I", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(text)
            process.stdin.close()
            try:
                for line in process.stdout:
                    yield self._heard(json.loads(line))
            finally:
                process.kill()  # whoever stops listening closes the connection, and with it goes the program

    def _heard(self, line: Mapping[str, Any]) -> Mapping[str, Any]:
        if "error" in line:
            error = line["error"]
            context = {"node": self._name, **error["context"]}
            raise ProgramFailed(what=error["what"], why=error["why"], fix=error["fix"], context=context)
        if "fault" in line:
            raise Bug(what=line["fault"], fix="read the trace")
        return line

    def put(self, source: bytes | Path, path: str, *, mode: int = 0o644) -> None:
        data = source if isinstance(source, bytes) else source.read_bytes()
        self.puts.append(Put(path, data, mode))
        Path(path).write_bytes(data)
        Path(path).chmod(mode)

    def dial(self, host: str, port: int, *, timeout_s: float) -> Any:
        raise AssertionError("the weights need no connection")

    def close(self) -> None:
        pass


class LocalNodes:
    """Implements contracts.Nodes over LocalNode."""

    def __init__(self, *names: str) -> None:
        self.by_name = {NodeName(name): LocalNode(name) for name in names}

    def __getitem__(self, name: NodeName) -> LocalNode:
        return self.by_name[name]

    def close(self) -> None:
        pass


class LocalSurvey:
    """Implements contracts.Survey: some sections answered as told, the others by the node itself, every time anew."""

    def __init__(self, nodes: LocalNodes, **told: Callable[[NodeName], Mapping[str, Any]]) -> None:
        self._nodes = nodes
        self._told = told
        self.asked: list[tuple[NodeName, str]] = []

    def ask(self, node: NodeName, question: Question) -> Mapping[str, Any]:
        self.asked.append((node, question.section))
        if question.section in self._told:
            return self._told[question.section](node)
        error = self._nodes[node].error
        if error is not None:
            raise error
        # In this process: a program of its own for each look would be most of what these tests cost.
        section = importlib.import_module(f"k3deploy.remote.sections.{question.section}")
        answer: Mapping[str, Any] = json.loads(json.dumps(section.answer(question.args)))
        return answer

    def forget(self, nodes: Sequence[NodeName]) -> None:
        pass
