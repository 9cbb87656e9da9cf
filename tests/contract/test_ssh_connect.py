"""Getting in, or not: host keys, login keys, jump hosts and the operator's ssh configuration, on a real sshd."""

import getpass
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from k3deploy.adapters.ssh import SshNodes
from k3deploy.adapters.ssh.host_key import HostKey
from k3deploy.adapters.ssh.shown_keys import shown_keys
from k3deploy.domain.command import Command
from k3deploy.domain.errors import AuthError, HostKeyError, NodeUnreachable
from k3deploy.domain.names import NodeName
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from tests.contract import sshd
from tests.contract.sshd import HOST, Sshd, make_key

USER = getpass.getuser()


@contextmanager
def nodes(*entries: NodeEntry, config: Path | None = None) -> Iterator[SshNodes]:
    opened = SshNodes(NodesFile(nodes=entries), 10, ssh_config=config)
    try:
        yield opened
    finally:
        opened.close()


def works(opened: SshNodes, name: str = "gpu-00") -> bool:
    return opened[NodeName(name)].run(Command(("true",))).succeeded


def fails(opened: SshNodes, error: type[Exception]) -> Exception:
    with pytest.raises(error) as caught:
        works(opened)
    return caught.value


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def known_hosts(path: Path, server: Sshd, key: str | None = None) -> Path:
    return write(path, f"[{HOST}]:{server.port} {key or server.host_key.line}")


@pytest.fixture
def stranger(tmp_path: Path) -> HostKey:
    return HostKey.parse(make_key(tmp_path / "stranger").with_suffix(".pub").read_text())


@pytest.fixture(scope="module")
def many_keys(needs_sshd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd"), host_key_kinds=("ed25519", "ecdsa", "rsa")) as running:
        yield running


# Host keys


def test_another_key_than_the_pinned_one_stops_that_node(server: Sshd, stranger: HostKey) -> None:
    with nodes(server.entry(host_key=stranger.line)) as opened:
        error = fails(opened, HostKeyError)
    assert isinstance(error, HostKeyError)
    assert error.context["found"] == f"{server.host_key.fingerprint} (ssh-ed25519)"
    assert error.context["wanted"] == f"{stranger.fingerprint} (ssh-ed25519)"
    assert error.context["recorded in"] == "host_key in the nodes file"
    assert f"k3deploy trust gpu-00 --fingerprint {server.host_key.fingerprint}" in error.fix
    assert not error.transient


def test_the_pin_counts_even_when_known_hosts_agrees_with_the_server(
    server: Sshd, stranger: HostKey, tmp_path: Path
) -> None:
    config = write(tmp_path / "config", f"UserKnownHostsFile {known_hosts(tmp_path / 'known', server)}")
    with nodes(server.entry(host_key=stranger.line), config=config) as opened:
        fails(opened, HostKeyError)


def test_an_unknown_key_is_shown_and_refused(server: Sshd, tmp_path: Path) -> None:
    config = write(tmp_path / "config", f"UserKnownHostsFile {tmp_path / 'none'}", "StrictHostKeyChecking no")
    with nodes(server.entry(host_key=None), config=config) as opened:
        error = fails(opened, HostKeyError)
    assert isinstance(error, HostKeyError)
    assert error.what == "gpu-00: its host key is not known"
    assert error.context["found"] == f"{server.host_key.fingerprint} (ssh-ed25519)"
    assert f"k3deploy trust gpu-00 --fingerprint {server.host_key.fingerprint}" in error.fix


def test_fingerprints_are_those_of_ssh_keygen(server: Sshd) -> None:
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(server.folder / "host_ed25519.pub")], capture_output=True, text=True, check=True
    ).stdout.split()
    assert server.host_key.fingerprint == shown[1]


def test_known_hosts_is_enough(server: Sshd, tmp_path: Path) -> None:
    config = write(tmp_path / "config", f"UserKnownHostsFile {known_hosts(tmp_path / 'known', server)}")
    with nodes(server.entry(host_key=None), config=config) as opened:
        assert works(opened)


def test_hashed_known_hosts_are_read(server: Sshd, tmp_path: Path) -> None:
    hashed = known_hosts(tmp_path / "known", server)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(hashed)], capture_output=True, check=True)
    assert HOST not in hashed.read_text()
    config = write(tmp_path / "config", f"UserKnownHostsFile {hashed}")
    with nodes(server.entry(host_key=None), config=config) as opened:
        assert works(opened)


def test_a_revoked_key_is_refused(server: Sshd, tmp_path: Path) -> None:
    line = f"[{HOST}]:{server.port} {server.host_key.line}"
    config = write(tmp_path / "config", f"UserKnownHostsFile {write(tmp_path / 'known', line, '@revoked ' + line)}")
    with nodes(server.entry(host_key=None), config=config) as opened:
        assert "revoked" in str(fails(opened, HostKeyError))


def test_a_host_key_alias_names_the_machine(server: Sshd, tmp_path: Path) -> None:
    known = write(tmp_path / "known", f"k3-head {server.host_key.line}")
    config = write(tmp_path / "config", f"UserKnownHostsFile {known}", "HostKeyAlias k3-head")
    with nodes(server.entry(host_key=None), config=config) as opened:
        assert works(opened)


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_only_the_type_on_record_is_negotiated(many_keys: Sshd, kind: str) -> None:
    """The server prefers ed25519; a client that knows only another of its keys must not meet that one."""
    pinned = HostKey.parse((many_keys.folder / f"host_{kind}.pub").read_text())
    with nodes(many_keys.entry(host_key=pinned.line)) as opened:
        assert works(opened)


def test_a_server_that_has_another_type_now_has_changed(server: Sshd, tmp_path: Path) -> None:
    pinned = HostKey.parse(make_key(tmp_path / "old", "ecdsa").with_suffix(".pub").read_text())
    with nodes(server.entry(host_key=pinned.line)) as opened:
        error = fails(opened, HostKeyError)
    assert isinstance(error, HostKeyError)
    assert error.context["found"] == f"{server.host_key.fingerprint} (ssh-ed25519)"
    assert error.context["wanted"] == f"{pinned.fingerprint} (ecdsa-sha2-nistp256)"


def test_all_keys_of_a_server_can_be_looked_at_without_a_login(many_keys: Sshd) -> None:
    entry = many_keys.entry(key="/nonexistent", host_key="what is this")
    kinds = ("ed25519", "ecdsa", "rsa")
    wanted = [HostKey.parse((many_keys.folder / f"host_{kind}.pub").read_text()) for kind in kinds]
    assert shown_keys(entry) == wanted


# Login


def test_a_wrong_key_is_named(server: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    with nodes(server.entry(key=str(other))) as opened:
        error = fails(opened, AuthError)
    assert isinstance(error, AuthError)
    shown = HostKey.parse(other.with_suffix(".pub").read_text()).fingerprint
    assert error.context["tried"] == f"{other} {shown}"
    assert error.fix.endswith(f"ssh -i {other} -p {server.port} {USER}@{HOST}")


def test_a_missing_key_is_named(server: Sshd, tmp_path: Path) -> None:
    with nodes(server.entry(key=str(tmp_path / "none"))) as opened:
        error = fails(opened, AuthError)
    assert isinstance(error, AuthError)
    assert error.why == "there is no key to offer"
    assert error.context["not tried"] == f"{tmp_path / 'none'} does not exist"


def encrypt(key: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)], capture_output=True, check=True
    )


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


@contextmanager
def agent(folder: Path, *keys: Path) -> Iterator[str]:
    path = folder / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        while not _accepts(path):
            assert process.poll() is None
        for key in keys:
            key.chmod(0o600)
            subprocess.run(
                ["ssh-add", "-q", str(key)],
                env={**os.environ, "SSH_AUTH_SOCK": str(path)},
                capture_output=True,
                check=True,
            )
        yield str(path)
    finally:
        process.terminate()
        process.wait(5)


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_an_encrypted_key_works_through_the_agent_alone(needs_sshd: None, tmp_path: Path, kind: str) -> None:
    key = make_key(tmp_path / "key", kind)
    with sshd.running(tmp_path / "sshd", authorized=f"{key}.pub") as server, agent(tmp_path, key) as socket_path:
        encrypt(key)
        entry = server.entry(key=str(key))
        config = write(tmp_path / "config", "IdentityAgent none")
        with nodes(entry, config=config) as opened:
            error = fails(opened, AuthError)
        assert isinstance(error, AuthError)
        assert error.fix == f"give the key to the agent: ssh-add {key}"
        config = write(tmp_path / "config", f"IdentityAgent {socket_path}")
        with nodes(entry, config=config) as opened:
            assert works(opened)


def test_a_full_agent_does_not_use_up_the_servers_patience(needs_sshd: None, tmp_path: Path) -> None:
    others = [make_key(tmp_path / f"other{number}") for number in range(5)]
    with sshd.running(tmp_path / "sshd", "MaxAuthTries 3", "LogLevel VERBOSE") as server:
        with agent(tmp_path, *others) as socket_path:
            config = write(tmp_path / "config", f"IdentityAgent {socket_path}", f"IdentityFile {server.key}")
            with nodes(server.entry(), config=config) as opened:
                assert works(opened)
            with nodes(server.entry(key=None), config=config) as opened:
                assert works(opened)
        assert "Failed publickey" not in server.log


def test_the_agents_keys_come_after_those_of_the_configuration(server: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    with agent(tmp_path, server.key) as socket_path:
        lines = [f"IdentityAgent {socket_path}", f"IdentityFile {other}"]
        with nodes(server.entry(key=None), config=write(tmp_path / "config", *lines)) as opened:
            assert works(opened)
        config = write(tmp_path / "config", *lines, "IdentitiesOnly yes")
        with nodes(server.entry(key=None), config=config) as opened:
            fails(opened, AuthError)


# Ways there


def test_nothing_listening_is_unreachable(server: Sshd) -> None:
    with nodes(server.entry(port=sshd.free_port())) as opened:
        error = fails(opened, NodeUnreachable)
    assert isinstance(error, NodeUnreachable)
    assert "refused" in error.why
    assert error.transient


def test_a_name_that_does_not_exist_is_unreachable(server: Sshd) -> None:
    with nodes(server.entry(address="no-such-machine.invalid")) as opened:
        fails(opened, NodeUnreachable)


def test_include_and_match_mean_what_they_mean_to_ssh(server: Sshd, tmp_path: Path) -> None:
    included = write(tmp_path / "included", "Host k3-head", f"  HostName {HOST}", f"  Port {server.port}")
    config = write(
        tmp_path / "config",
        f"Include {included}",
        f"Match originalhost k3-* user {USER}",
        f"  IdentityFile {server.key}",
        f"  UserKnownHostsFile {known_hosts(tmp_path / 'known', server)}",
    )
    entry = NodeEntry(name="gpu-00", address="k3-head", user=USER)
    with nodes(entry, config=config) as opened:
        assert works(opened)


@contextmanager
def bastion(folder: Path) -> Iterator[Sshd]:
    with sshd.running(folder, "LogLevel VERBOSE") as running:
        yield running


def jump_config(path: Path, jump: Sshd, *lines: str) -> Path:
    return write(
        path,
        "Host bastion",
        f"  HostName {HOST}",
        f"  Port {jump.port}",
        f"  User {USER}",
        f"  IdentityFile {jump.key}",
        f"  UserKnownHostsFile {known_hosts(path.with_suffix('.known'), jump)}",
        *lines,
    )


def test_nodes_behind_a_jump_host_share_its_connection(server: Sshd, many_keys: Sshd, tmp_path: Path) -> None:
    with bastion(tmp_path / "bastion") as jump:
        config = jump_config(tmp_path / "config", jump)
        entries = (server.entry("gpu-00", jump="bastion"), many_keys.entry("gpu-01", jump="bastion"))
        with nodes(*entries, config=config) as opened:
            assert works(opened, "gpu-00")
            assert works(opened, "gpu-01")
        assert jump.log.count("Accepted publickey") == 1


def test_proxy_jump_of_the_configuration_is_followed(server: Sshd, tmp_path: Path) -> None:
    with bastion(tmp_path / "bastion") as jump:
        lines = ["Host k3-head", f"  HostName {HOST}", f"  Port {server.port}", "  ProxyJump bastion"]
        config = jump_config(tmp_path / "config", jump, *lines)
        with nodes(server.entry(address="k3-head", port=None), config=config) as opened:
            assert works(opened)
        assert "Accepted publickey" in jump.log


def test_a_chain_of_jump_hosts_is_followed_in_order(server: Sshd, tmp_path: Path) -> None:
    with bastion(tmp_path / "first") as first, bastion(tmp_path / "second") as second:
        known = known_hosts(tmp_path / "known", second)
        lines = ["Host second", f"  HostName {HOST}", f"  Port {second.port}", f"  IdentityFile {second.key}"]
        config = jump_config(tmp_path / "config", first, *lines, f"  UserKnownHostsFile {known}")
        with nodes(server.entry(jump="bastion,second"), config=config) as opened:
            assert works(opened)
        assert "Accepted publickey" in first.log
        assert "Accepted publickey" in second.log


def test_the_jump_hosts_key_is_strict_too(server: Sshd, stranger: HostKey, tmp_path: Path) -> None:
    with bastion(tmp_path / "bastion") as jump:
        config = jump_config(tmp_path / "config", jump)
        known_hosts(tmp_path / "config.known", jump, stranger.line)
        with nodes(server.entry(jump="bastion"), config=config) as opened:
            error = fails(opened, HostKeyError)
    assert isinstance(error, HostKeyError)
    assert error.what == "jump host bastion: its host key is not the one on record"
    assert f"[{HOST}]:{jump.port} {jump.host_key.line}" in error.fix


def test_what_is_closed_behind_a_jump_host_is_unreachable(server: Sshd, tmp_path: Path) -> None:
    with bastion(tmp_path / "bastion") as jump:
        config = jump_config(tmp_path / "config", jump)
        with nodes(server.entry(jump="bastion", port=sshd.free_port()), config=config) as opened:
            error = fails(opened, NodeUnreachable)
    assert "jump host bastion cannot connect to" in str(getattr(error, "why", ""))


def test_a_jump_host_that_came_back_is_used_again(server: Sshd, tmp_path: Path) -> None:
    with bastion(tmp_path / "bastion") as jump:
        config = jump_config(tmp_path / "config", jump)
        with nodes(server.entry(jump="bastion"), config=config) as opened:
            assert works(opened)
            jump.cut_sessions()
            assert works(opened)


RELAY = """
import os, socket, sys, threading
sock = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536):
        sock.sendall(data)
threading.Thread(target=up, daemon=True).start()
while data := sock.recv(65536):
    os.write(1, data)
"""


def test_a_proxy_command_is_run_without_a_shell(server: Sshd, tmp_path: Path) -> None:
    relay = tmp_path / "the relay.py"
    relay.write_text(RELAY)
    config = write(tmp_path / "config", f"ProxyCommand {sys.executable} '{relay}' %h %p")
    with nodes(server.entry(), config=config) as opened:
        assert works(opened)


def test_a_proxy_command_that_is_not_there_is_unreachable(server: Sshd, tmp_path: Path) -> None:
    config = write(tmp_path / "config", "ProxyCommand /no/such/program %h %p")
    with nodes(server.entry(), config=config) as opened:
        fails(opened, NodeUnreachable)
