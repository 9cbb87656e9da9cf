"""What every Node does, the fake one and the real one alike."""

import json
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from k3deploy.adapters.ssh.config import SshConfig
from k3deploy.adapters.ssh.links import Jumps, Link
from k3deploy.adapters.ssh.node import SshNode
from k3deploy.contracts import Node
from k3deploy.domain.command import Command, CommandResult, Program, Secret
from k3deploy.domain.errors import NodeError, ProgramFailed
from k3deploy.testing import FakeNode
from tests.contract import programs
from tests.contract.sshd import HOST, Sshd


@pytest.fixture(params=["fake", "ssh"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    if request.param == "fake":
        yield _fake(tmp_path)
        return
    server: Sshd = request.getfixturevalue("server")
    config = SshConfig(Path("/dev/null"))
    link = Link("gpu-00", lambda: config.route(server.entry()), Jumps(10), 10)
    real = SshNode(link, pack=programs.pack)
    yield real
    real.close()


def _fake(folder: Path) -> FakeNode:
    """Scripted to do what the real machine does."""
    fake = FakeNode("gpu-00", has_module=programs.SOURCES.__contains__)

    def run(command: Command) -> CommandResult:
        done = subprocess.run(command.words(), capture_output=True, text=True, check=False)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def refuse() -> ProgramFailed:
        return ProgramFailed(
            what="gpu-00: 120 GiB free on /models, 640 GiB needed",
            why="it is small",
            fix="a larger disk",
            context={"node": "gpu-00", "free_gib": 120},
        )

    def echo(program: Program) -> Mapping[str, Any]:
        secrets = {name: secret.reveal() for name, secret in program.secrets.items()}
        return {"args": {**program.args, "secrets": secrets} if secrets else program.args}

    def put_to_disk(command: Command) -> CommandResult:
        return CommandResult(0, fake.files[command.argv[-1]].decode(), "")

    for name in ("sh", "printf", "env"):
        fake.on_command((name,), run)
    fake.on_command(("cat",), put_to_disk)
    fake.on_program("echo", echo)
    fake.on_program("steps", {"done": 3}, progress=[{"step": 0}, {"step": 1}, {"step": 2}])
    fake.on_program("refuse", refuse())
    fake.absent_folders.add(str(folder / "absent"))
    return fake


def test_has_its_name(node: Node) -> None:
    assert node.name == "gpu-00"


def test_a_failing_command_is_a_result(node: Node) -> None:
    result = node.run(Command(("sh", "-c", "echo out; echo err >&2; exit 7")))
    assert result == CommandResult(7, "out\n", "err\n")
    assert not result.succeeded


def test_words_and_variables_arrive_as_they_were_given(node: Node) -> None:
    words = ("", "a b", "$HOME", "`id`", "line\nline", "'", '"', "-n", "*", "größe", "\\")
    assert node.run(Command(("printf", "%s|", *words))).stdout == "|".join(words) + "|"
    shown = node.run(Command(("env", "-0"), env={"K3": "a $b\n'c'"})).stdout.split("\0")
    assert "K3=a $b\n'c'" in shown
    assert "LC_ALL=C" in shown


def test_runs_in_the_folder_named(node: Node, tmp_path: Path) -> None:
    assert node.run(Command(("sh", "-c", "pwd"), cwd=str(tmp_path))).stdout.strip() == str(tmp_path.resolve())


def test_a_program_gets_its_arguments_and_secrets(node: Node) -> None:
    args = {"text": "größe \n'\"", "number": 1.5, "list": [1, None, True], "nested": {"a": {}}}
    answer = node.call(Program("echo", args, secrets={"token": Secret("hf_s3cret")}))
    assert answer == {"args": {**args, "secrets": {"token": "hf_s3cret"}}}


def test_arguments_without_secrets_have_no_secrets(node: Node) -> None:
    assert node.call(Program("echo", {"a": 1})) == {"args": {"a": 1}}


def test_results_have_been_through_json(node: Node) -> None:
    assert node.call(Program("echo", {"pair": (1, 2)})) == {"args": {"pair": [1, 2]}}


def test_arguments_that_json_cannot_hold_fail(node: Node) -> None:
    with pytest.raises(TypeError):
        node.call(Program("echo", {"secret": Secret("x")}))


def test_progress_comes_before_the_result(node: Node) -> None:
    assert list(node.follow(Program("steps", {"count": 3}))) == [
        {"progress": {"step": 0}},
        {"progress": {"step": 1}},
        {"progress": {"step": 2}},
        {"result": {"done": 3}},
    ]


def test_leaving_early_is_allowed(node: Node) -> None:
    lines = node.follow(Program("steps", {"count": 3}))
    assert next(lines) == {"progress": {"step": 0}}
    del lines
    assert node.call(Program("steps", {"count": 3})) == {"done": 3}


def test_a_refusal_keeps_the_programs_own_words(node: Node) -> None:
    with pytest.raises(ProgramFailed) as caught:
        node.call(Program("refuse"))
    error = caught.value
    assert error.what == "gpu-00: 120 GiB free on /models, 640 GiB needed"
    assert (error.why, error.fix) == ("it is small", "a larger disk")
    assert error.context == {"node": "gpu-00", "free_gib": 120}


def test_a_file_that_was_put_is_there(node: Node, tmp_path: Path) -> None:
    node.put(b"one\n", str(tmp_path / "file"))
    node.put(b"two\n", str(tmp_path / "file"), mode=0o600)
    assert node.run(Command(("cat", str(tmp_path / "file")))).stdout == "two\n"


def test_a_local_file_can_be_put(node: Node, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("content")
    node.put(tmp_path / "source", str(tmp_path / "copy"))
    assert node.run(Command(("cat", str(tmp_path / "copy")))).stdout == "content"


def test_a_missing_local_file_is_our_mistake(node: Node, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        node.put(tmp_path / "none", str(tmp_path / "copy"))


def test_a_file_needs_its_folder(node: Node, tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="absent/file") as caught:
        node.put(b"x", str(tmp_path / "absent" / "file"))
    assert caught.value.context["node"] == "gpu-00"


def test_a_file_needs_an_absolute_path(node: Node) -> None:
    with pytest.raises(ValueError, match="absolute"):
        node.put(b"x", "file")


def test_dialled_connections_carry_bytes(node: Node) -> None:
    with _Upper() as port:
        if isinstance(node, FakeNode):
            node.on_dial(HOST, port, lambda: socket.create_connection((HOST, port), timeout=5))
        sock = node.dial(HOST, port, timeout_s=5)
        sock.sendall(b"hello")
        assert sock.recv(100) == b"HELLO"
        sock.close()


def test_a_closed_port_refuses(node: Node) -> None:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    if isinstance(node, FakeNode):
        node.on_dial(HOST, port, lambda: socket.create_connection((HOST, port), timeout=5))
    with pytest.raises(ConnectionRefusedError):
        node.dial(HOST, port, timeout_s=5)


class _Upper:
    """Answers one connection with what it got, in capitals."""

    def __enter__(self) -> int:
        self._listener = socket.create_server((HOST, 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        port: int = self._listener.getsockname()[1]
        return port

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.sendall(connection.recv(100).upper())

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._listener.close()


def test_the_survey_program_runs_from_the_real_bundle(server: Sshd) -> None:
    """The programs above are packed by the test; this one by `bundle` alone."""
    config = SshConfig(Path("/dev/null"))
    node = SshNode(Link("gpu-00", lambda: config.route(server.entry()), Jumps(10), 10))
    try:
        assert json.loads(json.dumps(node.call(Program("survey", {"questions": []})))) == {"answers": []}
    finally:
        node.close()
