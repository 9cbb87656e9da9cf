"""What is run on a node, as values. Nothing here runs anything; only transports call `line`."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DEFAULT_TIMEOUT_S = 60.0


class Secret:
    """Text that must not be shown. `repr`, `str` and formatting all give `***`; `reveal` is the one way out.

    It is not a `str`, so it cannot slip into an argv, a join or a log line unnoticed.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the transport that sends it by stdin."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(("Secret", self._text))


@dataclass(frozen=True)
class Command:
    """One program with its arguments, run on a node and waited for.

    `argv` and `env` hold plain text only: a secret travels by `Program.secrets`, on stdin.
    There is no pipe, redirection or glob: who needs one ships a program under `remote/`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    sudo: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("a command needs at least a program name")
        for word in (*self.argv, *self.env.keys(), *self.env.values()):
            if not isinstance(word, str):
                raise TypeError(f"a command holds text only, not {type(word).__name__}")
            if "\0" in word:
                raise ValueError("a command cannot hold a NUL character")
        for name in self.env:
            if not name or "=" in name:
                raise ValueError(f"not an environment variable name: {name!r}")

    def words(self) -> tuple[str, ...]:
        """The full argument vector that the node's kernel will see, `env` and `sudo` included."""
        prefix: list[str] = ["sudo", "-n", "--"] if self.sudo else []
        prefix.append("env")
        if self.cwd is not None:
            prefix += ["-C", self.cwd]
        # Output that we parse must not depend on the node's language.
        environment = {"LC_ALL": "C", **self.env}
        prefix += [f"{name}={value}" for name, value in sorted(environment.items())]
        return (*prefix, *self.argv)

    def line(self) -> str:
        """The one place where a shell line is made: what /bin/sh executes equals `words()`."""
        return shlex.join(self.words())


def pasteable(chunks: Sequence[Sequence[str]]) -> str:
    """A command for a person to paste into a shell, one chunk a line. Not for transports: they call `Command.line`."""
    return " \\\n  ".join(shlex.join(chunk) for chunk in chunks)


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. A non-zero exit is data, not an exception."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class Program:
    """A program of ours (`k3deploy.remote.<entry>`) run on a node by its own python3.

    Source, arguments and secrets travel together on stdin, so nothing stays on the node, no argument is
    visible in `ps`, and no length limit applies. `includes` names further modules under `k3deploy.remote` that the
    program imports by name at run time (survey sections, the body of a detached job).
    The program answers in JSON lines: any number of `{"progress": ...}` and at last one `{"result": ...}` or
    `{"error": {what, why, fix, ...}}`.
    """

    entry: str
    args: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    includes: tuple[str, ...] = ()
    sudo: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True)
class Question:
    """One section of the node survey (`remote/sections/`) with its arguments. Equal questions have one answer."""

    section: str
    args_json: str = "{}"  # canonical JSON: hashable, and the same text for the same question

    @staticmethod
    def of(section: str, **args: Any) -> "Question":
        return Question(section, json.dumps(args, sort_keys=True, separators=(",", ":")))

    @property
    def args(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.args_json)
        return parsed
