"""Machines that answer what they were told to, and keep all that was asked of them."""

import importlib.util
import json
import posixpath
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3deploy.domain.command import Command, CommandResult, Program
from k3deploy.domain.errors import K3Error, NodeError, ProgramFailed
from k3deploy.domain.names import NodeName
from k3deploy.testing.unscripted import Unscripted

CommandAnswer = CommandResult | K3Error | Callable[[Command], CommandResult]
ProgramAnswer = Mapping[str, Any] | K3Error | Callable[[Program], Mapping[str, Any]]
SectionAnswer = Mapping[str, Any] | ProgramFailed | Callable[[dict[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Put:
    """One file that was sent."""

    path: str
    data: bytes
    mode: int


def is_remote_module(name: str) -> bool:
    """Whether `k3deploy.remote.<name>` exists, so that a mistyped entry fails in unit tests already."""
    try:
        return importlib.util.find_spec("k3deploy.remote." + name) is not None
    except ModuleNotFoundError:
        return False


class FakeNode:
    """One scripted machine.

    `on_command(("docker", "info"), result)` answers every command that starts so (the longest prefix wins);
    `on_program("facts", result, progress=[...])` answers a program; `answers["facts"] = {...}` answers a question
    of the survey program; `on_dial(host, port, connect)` answers a connection. Results go through JSON, as the
    real ones do.
    A K3Error instead of a result is raised; `error` set makes every call fail with it (a machine that is away).
    """

    def __init__(self, name: str = "gpu-00", *, has_module: Callable[[str], bool] = is_remote_module) -> None:
        self._name = NodeName(name)
        self._has_module = has_module
        self._commands: dict[tuple[str, ...], CommandAnswer] = {}
        self._programs: dict[str, tuple[ProgramAnswer, tuple[Mapping[str, Any], ...]]] = {}
        self._dials: dict[tuple[str, int], Callable[[], Any]] = {}
        self._lock = threading.Lock()
        self.answers: dict[str, SectionAnswer] = {}
        self.error: K3Error | None = None
        self.commands: list[Command] = []
        self.programs: list[Program] = []
        self.puts: list[Put] = []
        self.dialled: list[tuple[str, int]] = []
        self.absent_folders: set[str] = set()
        self.is_closed = False

    @property
    def name(self) -> NodeName:
        return self._name

    @property
    def files(self) -> dict[str, bytes]:
        """What was put, by path; the last one counts."""
        return {put.path: put.data for put in self.puts}

    @property
    def argvs(self) -> list[tuple[str, ...]]:
        """The argument vectors of all commands, in order."""
        return [command.argv for command in self.commands]

    def on_command(self, prefix: Sequence[str], result: CommandAnswer | str) -> None:
        """Text as a result is stdout with exit code 0."""
        answer = CommandResult(0, result, "") if isinstance(result, str) else result
        self._commands[tuple(prefix)] = answer

    def on_program(self, entry: str, result: ProgramAnswer, *, progress: Sequence[Mapping[str, Any]] = ()) -> None:
        self._programs[entry] = (result, tuple(progress))

    def on_dial(self, host: str, port: int, connect: Callable[[], Any]) -> None:
        self._dials[host, port] = connect

    def run(self, command: Command) -> CommandResult:
        self._reach()
        with self._lock:
            self.commands.append(command)
        for length in range(len(command.argv), 0, -1):
            answer = self._commands.get(command.argv[:length])
            if answer is None:
                continue
            if isinstance(answer, K3Error):
                raise answer
            return answer if isinstance(answer, CommandResult) else answer(command)
        raise Unscripted(f"no result was scripted for {command.argv} on {self._name}")

    def call(self, program: Program) -> Mapping[str, Any]:
        *_, last = self.follow(program)
        result: Mapping[str, Any] = last["result"]
        return result

    def follow(self, program: Program) -> Iterator[Mapping[str, Any]]:
        self._reach()
        json.dumps(program.args)  # the real one packs the arguments as JSON
        for module in (program.entry, *program.includes):
            if not self._has_module(module):
                raise Unscripted(f"there is no module k3deploy.remote.{module} to send to {self._name}")
        with self._lock:
            self.programs.append(program)
        answer, progress = self._answer_of(program)
        for item in progress:
            yield {"progress": json.loads(json.dumps(item))}
        if isinstance(answer, K3Error):
            raise answer
        result = answer(program) if callable(answer) else answer
        yield {"result": json.loads(json.dumps(result))}

    def put(self, source: bytes | Path, path: str, *, mode: int = 0o644) -> None:
        self._reach()
        if not posixpath.isabs(path):
            raise ValueError(f"a path on a node is absolute, not {path!r}")
        if posixpath.dirname(path) in self.absent_folders:
            raise NodeError(
                what=f"{self._name}: cannot write {path}",
                why="its folder does not exist",
                fix="create the folder first",
                context={"node": self._name, "path": path},
            )
        data = source if isinstance(source, bytes) else source.read_bytes()
        with self._lock:
            self.puts.append(Put(path, data, mode))

    def dial(self, host: str, port: int, *, timeout_s: float) -> Any:
        self._reach()
        if timeout_s <= 0:
            raise ValueError("a dial needs a deadline")
        with self._lock:
            self.dialled.append((host, port))
        connect = self._dials.get((host, port))
        if connect is None:
            raise Unscripted(f"no connection was scripted to {host}:{port} from {self._name}")
        return connect()

    def close(self) -> None:
        self.is_closed = True

    def _reach(self) -> None:
        if self.error is not None:
            raise self.error

    def _answer_of(self, program: Program) -> tuple[ProgramAnswer, tuple[Mapping[str, Any], ...]]:
        scripted = self._programs.get(program.entry)
        if scripted is not None:
            return scripted
        if program.entry == "survey" and self.answers:
            return self._surveyed, ()
        raise Unscripted(f"no result was scripted for program {program.entry!r} on {self._name}")

    def _surveyed(self, program: Program) -> Mapping[str, Any]:
        return {"answers": [self._section(question) for question in program.args["questions"]]}

    def _section(self, question: dict[str, Any]) -> Mapping[str, Any]:
        section = question["section"]
        answer = self.answers.get(section)
        if answer is None:
            raise Unscripted(f"no answer was scripted for section {section!r} on {self._name}")
        if isinstance(answer, ProgramFailed):
            return {
                "refusal": {"what": answer.what, "why": answer.why, "fix": answer.fix, "context": answer.context},
            }
        return {"answer": answer(question["args"]) if callable(answer) else answer}


class FakeNodes:
    """`FakeNodes("gpu-00", "gpu-01")`; `[name]` gives the FakeNode, and `used` keeps the names asked for."""

    def __init__(self, *names: str) -> None:
        self.by_name = {NodeName(name): FakeNode(name) for name in names}
        self.used: set[NodeName] = set()
        self.is_closed = False

    def __getitem__(self, name: NodeName | str) -> FakeNode:
        node = self.by_name.get(NodeName(name))
        if node is None:
            raise Unscripted(f"there is no fake node {name!r}, only {sorted(self.by_name)}")
        self.used.add(node.name)
        return node

    def each(self) -> Sequence[FakeNode]:
        """All nodes in the order given, to script them alike."""
        return tuple(self.by_name.values())

    def close(self) -> None:
        self.is_closed = True
