"""Commands, programs and files on a real sshd: what can go wrong between here and there."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3deploy.adapters.ssh.config import SshConfig
from k3deploy.adapters.ssh.links import Jumps, Link
from k3deploy.adapters.ssh.node import SshNode
from k3deploy.domain.command import Command, Program, Secret
from k3deploy.domain.errors import NodeError, NodeTimeout, NodeUnreachable, ProgramFailed
from tests.contract import programs, sshd
from tests.contract.sshd import Sshd

# What a person, a file name or a model's name could hold: anything but NUL.
WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=60)
NAMES = st.text("ABCXYZ_019", max_size=20).map("K3_".__add__)


def connect(server: Sshd, **changes: object) -> SshNode:
    config = SshConfig(Path("/dev/null"))
    return SshNode(Link("gpu-00", lambda: config.route(server.entry(**changes)), Jumps(10), 10), pack=programs.pack)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def node(server: Sshd) -> Iterator[SshNode]:
    connected = connect(server)
    assert connected.run(Command(("true",))).succeeded  # so that no deadline below is for connecting
    yield connected
    connected.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS, min_size=1, max_size=5))
def test_what_arrives_equals_what_was_built(node: SshNode, words: list[str]) -> None:
    shown = node.run(Command(("printf", "%s\\0", *words))).stdout
    assert shown.split("\0")[:-1] == words


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(env=st.dictionaries(NAMES, WORDS, max_size=4))
def test_variables_arrive_as_they_were_built(node: SshNode, env: dict[str, str]) -> None:
    shown = dict(line.split("=", 1) for line in node.run(Command(("env", "-0"), env=env)).stdout.split("\0")[:-1])
    assert {name: shown[name] for name in env} == env


def test_both_streams_may_be_larger_than_the_window(node: SshNode) -> None:
    """paramiko's window is 2 MiB for both together: reading one after the other would never end."""
    size = 3 << 20
    code = f"import sys; sys.stderr.write('e' * {size}); sys.stderr.flush(); sys.stdout.write('o' * {size})"
    result = node.run(Command(("python3", "-c", code)))
    assert (result.exit_code, len(result.stdout), len(result.stderr)) == (0, size, size)
    assert set(result.stdout) == {"o"}


def test_output_has_a_limit(node: SshNode) -> None:
    with pytest.raises(NodeError, match="printed more than"):
        node.run(Command(("head", "-c", str(80 << 20), "/dev/zero")))
    assert node.run(Command(("true",))).succeeded


def test_bytes_that_are_no_text_are_shown_as_such(node: SshNode) -> None:
    assert node.run(Command(("printf", "a\\377b"))).stdout == "a\ufffdb"


def test_standard_input_is_closed(node: SshNode) -> None:
    assert node.run(Command(("cat",), timeout_s=10)).stdout == ""


def test_a_command_that_a_signal_ended_has_a_code(node: SshNode) -> None:
    # 255 when sshd itself saw the signal, 137 when a shell stood between.
    assert node.run(Command(("sh", "-c", "kill -9 $$"))).exit_code in (255, 137)


def test_a_command_that_hangs_is_told_from_a_machine_that_is_gone(node: SshNode) -> None:
    with pytest.raises(NodeTimeout, match=r"not finished in 0.3 s: sleep") as caught:
        node.run(Command(("sleep", "5"), timeout_s=0.3))
    assert caught.value.why == "the machine answers, so this command itself hangs"
    assert caught.value.transient
    assert node.run(Command(("true",))).succeeded


def test_a_child_that_keeps_the_output_open_is_named(node: SshNode) -> None:
    with pytest.raises(NodeTimeout) as caught:
        node.run(Command(("sh", "-c", "sleep 3 & exit 4"), timeout_s=0.5))
    assert "ended with exit code 4" in caught.value.why


def test_programs_have_a_deadline_too(node: SshNode) -> None:
    lines = node.follow(Program("hangs", timeout_s=3))
    assert next(lines) == {"progress": {"step": 0}}
    with pytest.raises(NodeTimeout, match="hangs"):
        next(lines)


def test_a_fault_shows_its_trace_without_secrets(node: SshNode) -> None:
    with pytest.raises(ProgramFailed) as caught:
        node.call(Program("broken", {"missing": "hf_s3cret"}, secrets={"token": Secret("hf_s3cret")}))
    error = caught.value
    assert error.what == "gpu-00: broken broke: KeyError: '***'"
    assert "def main" not in error.what
    assert "Traceback (most recent call last)" in str(error.context["trace"])
    assert "hf_s3cret" not in json.dumps(error.as_dict())


def test_a_program_that_dies_is_not_taken_for_done(node: SshNode) -> None:
    with pytest.raises(ProgramFailed, match="dies ended without an answer") as caught:
        node.call(Program("dies"))
    assert caught.value.why == "exit code 3"


def test_noise_around_the_answer_does_not_matter(node: SshNode) -> None:
    assert node.call(Program("noisy")) == {"value": 1410000000000}


def test_an_answer_of_megabytes_comes_whole(node: SshNode) -> None:
    assert node.call(Program("big", {"size": 5 << 20})) == {"text": "x" * (5 << 20)}


def test_a_python_without_its_library_is_told_with_the_way_out(node: SshNode) -> None:
    with pytest.raises(NodeError) as caught:
        node.call(Program("lacking"))
    assert "a_module_that_is_not_there" in caught.value.why
    assert "apt-get install -y python3" in caught.value.fix


def test_arguments_are_not_in_the_process_list(node: SshNode) -> None:
    lines = node.follow(Program("hangs", {"path": "UNIQUE-ARGUMENT"}, secrets={"t": Secret("UNIQUE-SECRET")}))
    next(lines)
    shown = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # that one has just ended
            shown += path.read_bytes()
    lines.close()  # type: ignore[attr-defined]
    assert b"python3\0-I\0-\0" in shown
    assert b"UNIQUE" not in shown


def test_login_noise_does_not_matter(needs_sshd: None, tmp_path: Path) -> None:
    """A message of the day on stdout, bytes that are no text included, before every command."""
    greeting = "ForceCommand printf 'Welcome to GPUCloud!\\n\\377 no end: '; eval \"$SSH_ORIGINAL_COMMAND\""
    with sshd.running(tmp_path / "sshd", greeting) as server:
        node = connect(server)
        assert node.call(Program("steps", {"count": 1})) == {"done": 1}
        node.close()


def test_a_machine_without_python_is_told_with_the_way_out(needs_sshd: None, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("env", "sh", "true"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (tmp_path / "bin" / name).symlink_to(found)
    with sshd.running(tmp_path / "sshd", path=str(tmp_path / "bin")) as server:
        node = connect(server)
        with pytest.raises(NodeError) as caught:
            node.call(Program("steps", {"count": 1}))
        assert "it is not installed" in caught.value.why
        assert "apt-get install -y python3" in caught.value.fix
        node.close()


def test_threads_share_the_connection_under_the_servers_limit(needs_sshd: None, tmp_path: Path) -> None:
    """More commands than sessions: sshd is told to allow three, where we would use eight."""
    with sshd.running(tmp_path / "sshd", "MaxSessions 3") as server:
        node = connect(server)
        codes: list[int] = []

        def work() -> None:
            codes.append(node.run(Command(("sleep", "0.1"))).exit_code)

        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        node.close()
        assert codes == [0] * 10
        assert server.log.count("Accepted publickey") == 1


def test_a_connection_that_died_idle_is_opened_again(server: Sshd) -> None:
    node = connect(server)
    assert node.run(Command(("true",))).succeeded
    server.cut_sessions()
    assert node.run(Command(("true",))).succeeded
    server.cut_sessions()
    assert node.call(Program("steps", {"count": 1})) == {"done": 1}
    node.close()


def test_a_command_that_was_cut_off_is_not_sent_again(needs_sshd: None, tmp_path: Path) -> None:
    with sshd.running(tmp_path / "sshd") as server:
        node = connect(server)
        node.run(Command(("true",)))
        mark = tmp_path / "mark"

        def cut_when_it_runs() -> None:
            while not mark.exists():
                time.sleep(0.02)
            server.cut_sessions()

        cutter = threading.Thread(target=cut_when_it_runs, daemon=True)
        cutter.start()
        with pytest.raises(NodeUnreachable, match="the SSH connection broke during: sh") as caught:
            node.run(Command(("sh", "-c", f"echo ran >> {mark}; sleep 5")))
        cutter.join(10)
        assert "it may have run" in caught.value.why
        assert node.run(Command(("cat", str(mark)))).stdout == "ran\n"
        node.close()


def test_files_have_their_mode_before_their_content(node: SshNode, tmp_path: Path) -> None:
    target = tmp_path / "secret"
    node.put(b"x" * 100_000, str(target), mode=0o600)
    assert (target.stat().st_mode & 0o777, target.stat().st_size) == (0o600, 100_000)
    node.put(b"", str(target), mode=0o640)
    assert (target.stat().st_mode & 0o777, target.stat().st_size) == (0o640, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_readers_never_see_a_part_of_a_file(node: SshNode, tmp_path: Path) -> None:
    target = tmp_path / "file"
    source = tmp_path / "source"
    whole = [b"a" * 400_000, b"b" * 400_000]
    target.write_bytes(whole[0])
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(target.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for round_ in range(6):
        source.write_bytes(whole[round_ % 2])
        node.put(source, str(target))
    stop.set()
    reader.join(10)
    assert seen <= set(whole)


def test_a_file_that_cannot_be_written_leaves_nothing(node: SshNode, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "inside").touch()
    with pytest.raises(NodeError, match="was not written"):
        node.put(b"x", str(tmp_path / "target"))
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_server_without_sftp_is_told_so(needs_sshd: None, tmp_path: Path) -> None:
    with sshd.running(tmp_path / "sshd", sftp=False) as server:
        node = connect(server)
        with pytest.raises(NodeError, match="files cannot be sent") as caught:
            node.put(b"x", str(tmp_path / "file"))
        assert "Subsystem sftp" in caught.value.fix
        node.close()


def test_forwarding_that_is_forbidden_is_told_so(needs_sshd: None, tmp_path: Path) -> None:
    with sshd.running(tmp_path / "sshd", "AllowTcpForwarding no") as server:
        node = connect(server)
        with pytest.raises(NodeError) as caught:
            node.dial("127.0.0.1", server.port, timeout_s=5)
        assert caught.value.fix == "set `AllowTcpForwarding yes` in its sshd_config"
        node.close()
