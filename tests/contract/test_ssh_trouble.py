"""Servers that misbehave, as sshd does when it is overloaded, restricted or wedged."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from k3deploy.adapters.ssh import SshNodes
from k3deploy.adapters.ssh.node import SshNode
from k3deploy.domain.command import Command, Program
from k3deploy.domain.errors import AuthError, NodeError, NodeTimeout, NodeUnreachable
from k3deploy.domain.names import NodeName
from k3deploy.domain.nodes_file import NodesFile
from tests.contract import stub_sshd
from tests.contract.sshd import make_key
from tests.contract.stub_sshd import Reply, StubSshd

OK: Reply = (0, b"", b"")
SILENCE: Reply = (None, b"", b"")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_key(tmp_path_factory.mktemp("key") / "key"))


@contextmanager
def connected(stub: StubSshd, key: str, *, connect_timeout_s: float = 10, **changes: object) -> Iterator[SshNode]:
    opened = SshNodes(NodesFile(nodes=(stub.entry(key, **changes),)), connect_timeout_s, ssh_config=Path("/dev/null"))
    try:
        yield opened[NodeName("gpu-00")]
    finally:
        opened.close()


def test_connections_dropped_before_the_banner_are_tried_again(key: str) -> None:
    """F-047: sshd's MaxStartups drops the first three."""
    with stub_sshd.running(lambda _: OK, drops=3) as stub, connected(stub, key) as node:
        assert node.run(Command(("true",))).succeeded
        assert stub.connections == 4


def test_a_server_that_always_drops_is_given_up(key: str) -> None:
    with stub_sshd.running(lambda _: OK, drops=100) as stub, connected(stub, key) as node:
        with pytest.raises(NodeUnreachable, match="gpu-00: no SSH connection") as caught:
            node.run(Command(("true",)))
        assert stub.connections == 5
        assert "5 times" in caught.value.why


def test_a_server_that_says_nothing_is_given_up_at_the_deadline(key: str) -> None:
    with (
        stub_sshd.running(lambda _: OK, is_mute=True) as stub,
        connected(stub, key, connect_timeout_s=0.5) as node,
        pytest.raises(NodeUnreachable) as caught,
    ):
        node.run(Command(("true",)))
    assert caught.value.why == "no SSH handshake within 0.5 s"


def test_threads_that_wait_for_one_attempt_share_its_failure(key: str) -> None:
    with stub_sshd.running(lambda _: OK, is_mute=True) as stub, connected(stub, key, connect_timeout_s=0.5) as node:
        failures: list[Exception] = []

        def work() -> None:
            try:
                node.run(Command(("true",)))
            except NodeUnreachable as err:
                failures.append(err)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(failures) == 4
        assert stub.connections < 4


def test_more_commands_than_sessions_wait_for_their_turn(key: str) -> None:
    """F-048: eight commands, three sessions."""
    with stub_sshd.running(lambda _: OK, sessions=3) as stub, connected(stub, key) as node:
        codes: list[int] = []
        threads = [
            threading.Thread(target=lambda: codes.append(node.run(Command(("true",))).exit_code)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert codes == [0] * 8
        assert stub.connections == 1


def test_a_server_that_opens_no_session_is_named(key: str) -> None:
    with (
        stub_sshd.running(lambda _: OK, sessions=0) as stub,
        connected(stub, key) as node,
        pytest.raises(NodeError, match="the server opens no session"),
    ):
        node.run(Command(("true",)))


def test_no_exit_status_and_an_answer_to_true_is_a_command_that_hangs(key: str) -> None:
    """F-052: paramiko would wait for ever."""

    def answer(line: str) -> Reply:
        return OK if line.endswith(" true") else SILENCE

    with stub_sshd.running(answer) as stub, connected(stub, key) as node:
        assert node.run(Command(("true",))).succeeded  # the deadline below is not for connecting
        with pytest.raises(NodeTimeout, match="nvidia-smi") as caught:
            node.run(Command(("nvidia-smi",), timeout_s=0.4))
    assert caught.value.why == "the machine answers, so this command itself hangs"


def test_a_first_message_that_is_not_json_is_no_answer(key: str) -> None:
    def answer(line: str) -> Reply:
        return (0, b"Welcome!\n", b"") if line.endswith("-I -") else OK

    with (
        stub_sshd.running(answer) as stub,
        connected(stub, key) as node,
        pytest.raises(NodeError, match="survey ended without an answer") as caught,
    ):
        node.call(Program("survey", {"questions": []}))
    assert caught.value.context["printed"] == "Welcome!"


def no_sudo(line: str) -> Reply:
    return (1, b"", b"sudo: a password is required\n") if " sudo " in f" {line}" else OK


def by_program(node: SshNode) -> object:
    return node.call(Program("survey", {"questions": []}, sudo=True))


def by_command(node: SshNode) -> object:
    return node.run(Command(("systemctl", "stop", "docker"), sudo=True))


@pytest.mark.parametrize("use", [by_program, by_command])
def test_sudo_that_wants_a_password_is_told_with_the_way_out(key: str, use: Callable[[SshNode], object]) -> None:
    """F-054, decided by the exit code of `sudo -n true`, not by its words."""
    with stub_sshd.running(no_sudo) as stub, connected(stub, key) as node:
        with pytest.raises(AuthError, match="gpu-00: ops cannot become root") as caught:
            use(node)
        assert "/etc/sudoers.d/" in caught.value.fix
        assert stub.lines[-1].endswith("sudo -n true")


def test_a_failing_command_behind_a_working_sudo_is_a_result_and_sudo_is_asked_once(key: str) -> None:
    def answer(line: str) -> Reply:
        return OK if line.endswith("sudo -n true") else (5, b"", b"no")

    with stub_sshd.running(answer) as stub, connected(stub, key) as node:
        for _ in range(2):
            assert node.run(Command(("systemctl", "stop", "docker"), sudo=True)).exit_code == 5
        assert [line.endswith("sudo -n true") for line in stub.lines] == [False, True, False]


def test_root_needs_no_sudo(key: str) -> None:
    with stub_sshd.running(lambda _: OK, user="root") as stub, connected(stub, key) as node:
        node.run(Command(("systemctl", "stop", "docker"), sudo=True))
        assert stub.lines == ["env LC_ALL=C systemctl stop docker"]


def test_an_old_python_is_told_with_the_way_out(key: str) -> None:
    def answer(line: str) -> Reply:
        if line.endswith("-I -"):
            return 1, b"", b"SyntaxError: invalid syntax\n"
        return (10, b"", b"") if "version_info" in line else OK

    with (
        stub_sshd.running(answer) as stub,
        connected(stub, key) as node,
        pytest.raises(NodeError, match="python3 cannot run our programs") as caught,
    ):
        node.call(Program("survey", {"questions": []}))
    assert "older than 3.10" in caught.value.why


def test_a_second_factor_is_told(key: str) -> None:
    with (
        stub_sshd.running(lambda _: OK, partial=True) as stub,
        connected(stub, key) as node,
        pytest.raises(AuthError) as caught,
    ):
        node.run(Command(("true",)))
    assert caught.value.why == "the key was accepted, but the server also wants publickey, keyboard-interactive"
