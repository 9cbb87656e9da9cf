"""SSH without a server: host keys, known_hosts, the ssh configuration, key files, and what programs print."""

import subprocess
import sys
from pathlib import Path

import pytest

from k3deploy.adapters.ssh.answers import Reader, parse
from k3deploy.adapters.ssh.config import SshConfig, parse_ssh_g
from k3deploy.adapters.ssh.failures import by_hand
from k3deploy.adapters.ssh.host_key import HostKey, algorithms_for
from k3deploy.adapters.ssh.known_hosts import lookup, name_for
from k3deploy.adapters.ssh.pool import SshNodes
from k3deploy.adapters.ssh.route import Route
from k3deploy.domain.errors import ProfileError
from k3deploy.domain.names import NodeName
from k3deploy.domain.nodes_file import NodeEntry, NodesFile

# Made with ssh-keygen; the fingerprints are what `ssh-keygen -l` shows.
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA0LoUtLQ41adCKmTJBF+Sp+YZRgVeYoYBq0HsZgkgsh"
ED25519_FINGERPRINT = "SHA256:T9pzNXsw3MxuGHBmXvxUNNqN5b/wjmng0Sx8XYEnzno"
ECDSA = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBLWuM92MtkUBfNZfsm42"
    "H3LFcQFNQnyLmPLpApR0iSKY6RK8TDQTHzoRq3gP4wwjB/nfPwO3QS3DGulVyNH2cOg="
)


def entry(**values: object) -> NodeEntry:
    return NodeEntry.model_validate({"name": "gpu-00", "address": "10.0.0.10", **values})


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture(params=["ssh", "paramiko"])
def by(request: pytest.FixtureRequest) -> str | None:
    """Both ways to read the configuration."""
    return None if request.param == "paramiko" else "ssh"


# Host keys


def test_a_host_key_reads_and_writes_itself() -> None:
    key = HostKey.parse(ED25519 + " root@gpu-00")
    assert (key.kind, key.line, key.fingerprint) == ("ssh-ed25519", ED25519, ED25519_FINGERPRINT)
    assert str(key) == f"{ED25519_FINGERPRINT} (ssh-ed25519)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ssh-ed25519", "a type and a key"),
        ("ssh-dss AAAA", "ssh-dss is not one of"),
        ("ssh-ed25519 not!base64", "not base64"),
        (ECDSA.replace("ecdsa-sha2-nistp256", "ssh-ed25519"), "not of type ssh-ed25519"),
    ],
)
def test_what_is_no_host_key_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HostKey.parse(text)


def test_only_algorithms_of_the_types_on_record_are_offered() -> None:
    assert algorithms_for({"ssh-rsa"}) == ("rsa-sha2-512", "rsa-sha2-256")
    assert algorithms_for({"ssh-ed25519", "ecdsa-sha2-nistp256"}) == ("ssh-ed25519", "ecdsa-sha2-nistp256")


# known_hosts


@pytest.mark.parametrize(
    ("names", "host", "port", "is_known"),
    [
        ("gpu-00", "gpu-00", 22, True),
        ("GPU-00", "gpu-00", 22, True),
        ("gpu-00", "gpu-00", 2222, False),
        ("[gpu-00]:2222", "gpu-00", 2222, True),
        ("[gpu-00]:2222", "gpu-00", 22, False),
        ("a,b,gpu-00", "gpu-00", 22, True),
        ("gpu-*", "gpu-00", 22, True),
        ("gpu-0?", "gpu-00", 22, True),
        ("gpu-*,!gpu-00", "gpu-00", 22, False),
        ("!gpu-00,gpu-*", "gpu-00", 22, False),
        ("gpu-[0-9]*", "gpu-00", 22, False),
        ("10.0.0.1", "10.0.0.10", 22, False),
    ],
)
def test_names_in_known_hosts_match_as_in_openssh(
    tmp_path: Path, names: str, host: str, port: int, is_known: bool
) -> None:
    path = write(tmp_path / "known", f"# a comment\n\n{names} {ED25519} comment\n")
    assert lookup(name_for(host, port), [path]).keys == ((HostKey.parse(ED25519),) if is_known else ())


def test_all_files_and_keys_count_and_odd_lines_do_not(tmp_path: Path) -> None:
    first = write(
        tmp_path / "a", f"gpu {ED25519}\ngpu ssh-dss AAAA\ngpu\n@cert-authority gpu {ECDSA}\n|1|x gpu {ECDSA}\n"
    )
    second = write(tmp_path / "b", f"gpu {ECDSA}\n@revoked gpu {ED25519}\n")
    known = lookup("gpu", [first, tmp_path / "none", second])
    assert known.keys == (HostKey.parse(ED25519), HostKey.parse(ECDSA))
    assert known.revoked == (HostKey.parse(ED25519),)
    assert known.sources == (f"{first}:1", f"{second}:1")


def test_a_hashed_name_is_found(tmp_path: Path) -> None:
    """Made with `ssh-keygen -H`."""
    path = write(tmp_path / "known", f"|1|tFvPu1fqy4CAUlvEqrTYOO++MLQ=|3uC9d2Ivz6oWd4IHNQrWX4+E54o= {ED25519}\n")
    assert lookup("[gpu-00]:2222", [path]).keys == (HostKey.parse(ED25519),)
    assert lookup("gpu-00", [path]).keys == ()


# The ssh configuration


def route(tmp_path: Path, text: str, by: str | None, **values: object) -> Route:
    return SshConfig(write(tmp_path / "config", text), ssh=by).route(entry(**values))


def test_the_configuration_fills_what_the_nodes_file_leaves_open(tmp_path: Path, by: str | None) -> None:
    text = f"""
Host k3-*
  HostName 192.0.2.7
  User ubuntu
  Port 2222
  IdentityFile {tmp_path}/%r-%h
  IdentitiesOnly yes
  UserKnownHostsFile {tmp_path}/known
"""
    found = route(tmp_path, text, by, address="k3-head")
    assert (found.host, found.port, found.user, found.address) == ("192.0.2.7", 2222, "ubuntu", "ubuntu@192.0.2.7:2222")
    assert found.identities.files == (tmp_path / "ubuntu-192.0.2.7",)
    assert (found.identities.only_files, found.identities.is_explicit) == (True, True)
    assert found.known_hosts[0] == tmp_path / "known"
    assert found.host_key_name == "[192.0.2.7]:2222"
    assert found.via is None


def test_the_nodes_file_wins(tmp_path: Path, by: str | None) -> None:
    text = "Host *\n  User ubuntu\n  Port 2222\n  IdentityFile /elsewhere\n  ProxyJump bastion\n"
    found = route(tmp_path, text, by, user="root", port=22, key="/keys/k3", jump="none", host_key=ED25519)
    assert (found.user, found.port, found.via) == ("root", 22, None)
    assert found.identities.files == (Path("/keys/k3"),)
    assert found.identities.only_files
    assert found.pin == HostKey.parse(ED25519)


def test_a_chain_of_jump_hosts_keeps_its_order(tmp_path: Path, by: str | None) -> None:
    """F-050, with a second hop: ops@bastion:2222, then inner, then the node."""
    text = """
Host k3-*
  User ubuntu
  ProxyJump ops@bastion:2222,inner
Host k3-node-0
  HostName 10.0.0.10
Host inner
  HostName 10.0.0.1
  User jump
"""
    found = route(tmp_path, text, by, address="k3-node-0")
    hops = []
    hop: Route | None = found
    while hop is not None:
        hops.append(hop.address)
        hop = hop.via
    assert hops[::-1] == ["ops@bastion:2222", "jump@10.0.0.1:22", "ubuntu@10.0.0.10:22"]
    assert by_hand(found) == "ssh -J ops@bastion:2222,jump@10.0.0.1:22 ubuntu@10.0.0.10"


def test_jump_hosts_in_a_circle_are_told(tmp_path: Path, by: str | None) -> None:
    text = "Host 10.0.0.10\n  ProxyJump a\nHost a\n  ProxyJump b\nHost b\n  ProxyJump a\n"
    with pytest.raises(ProfileError, match="jump hosts in a row"):
        route(tmp_path, text, by)


def test_jump_hosts_may_be_ipv6(tmp_path: Path, by: str | None) -> None:
    found = route(tmp_path, "", by, jump="ops@[2001:db8::1]:2222", user="u")
    assert found.via is not None
    assert (found.via.host, found.via.port, found.via.address) == ("2001:db8::1", 2222, "ops@[2001:db8::1]:2222")


@pytest.mark.parametrize("jump", ["a:b", "@host", "ops@", ","])
def test_what_is_no_jump_host_is_told(tmp_path: Path, jump: str) -> None:
    with pytest.raises(ProfileError, match="is no jump host"):
        route(tmp_path, "", "ssh", jump=jump)


def test_a_proxy_command_becomes_words(tmp_path: Path) -> None:
    """Tokens are filled in after the split: a host's name can add no word, let alone a shell's."""
    text = "Host *\n  ProxyCommand exec tool --to '%h and %p' %r%%\n"
    found = route(tmp_path, text, "ssh", user="u")
    assert found.proxy_command == ("tool", "--to", "10.0.0.10 and 22", "u%")
    assert route(tmp_path, text, "ssh", jump="bastion").proxy_command == ()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("IdentityAgent none", None), ("IdentityAgent /run/agent", "/run/agent"), ("IdentityAgent $K3_AGENT", "/from/env"),
     ("IdentityAgent SSH_AUTH_SOCK", "/default"), ("", "/default")],
)  # fmt: skip
def test_the_agent_is_the_configured_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, wanted: str | None
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/default")
    monkeypatch.setenv("K3_AGENT", "/from/env")
    assert route(tmp_path, text, "ssh").identities.agent_socket == wanted


def test_default_keys_are_nobodys_wish(tmp_path: Path, by: str | None) -> None:
    found = route(tmp_path, "", by).identities
    assert not found.is_explicit
    assert Path("~/.ssh/id_ed25519").expanduser() in found.files


def test_a_configuration_that_ssh_cannot_read_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        route(tmp_path, "NoSuchOption yes\n", "ssh")
    assert "nosuchoption" in caught.value.why.lower()
    assert caught.value.fix == "check what this prints: ssh -G 10.0.0.10"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"address": "-oProxyCommand=touch /tmp/x"}, "looks like an option"),
        ({"host_key": "what"}, "host_key in the nodes file cannot be read"),
    ],
)
def test_entries_that_cannot_be_used_are_told(tmp_path: Path, values: dict[str, object], what: str) -> None:
    with pytest.raises(ProfileError, match=what):
        route(tmp_path, "", "ssh", **values)


def test_an_address_may_name_the_user(tmp_path: Path, by: str | None) -> None:
    found = route(tmp_path, "", by, address="ops@10.0.0.9")
    assert (found.user, found.host) == ("ops", "10.0.0.9")


def test_lines_of_ssh_g_may_repeat() -> None:
    text = "user ops\nidentityfile ~/.ssh/a\nidentityfile ~/.ssh/b c\nproxyjump\n"
    assert parse_ssh_g(text) == {"user": ["ops"], "identityfile": ["~/.ssh/a", "~/.ssh/b c"], "proxyjump": [""]}


# What programs print


def test_answers_are_told_from_noise() -> None:
    reader = Reader()
    got = list(reader.feed(b'Welcome!\n{"progress":{"a":1}}\nno newline{"progr'))
    got += list(reader.feed(b'ess":2}\n\xff{"other": 1}\n[1]\n{"result":{"x":"{\\"result\\":0}"}}'))
    assert got == [{"progress": {"a": 1}}, {"progress": 2}]
    assert list(reader.end()) == [{"result": {"x": '{"result":0}'}}]
    assert reader.noise == 'Welcome!\n\ufffd{"other": 1}\n[1]\n'
    assert reader.has_spoken


@pytest.mark.parametrize("line", [b"", b"{}", b'{"result":', b'"result"', b'{"results": 1}', b"null"])
def test_lines_that_are_no_answer_are_none(line: bytes) -> None:
    assert parse(line) is None


# The pool


def test_an_unknown_node_is_told_with_the_known_ones() -> None:
    nodes = SshNodes(NodesFile(nodes=(entry(),)), 10)
    with pytest.raises(ProfileError, match="has no node gpu-07") as caught:
        nodes[NodeName("gpu-07")]
    assert caught.value.fix == "use one of: gpu-00"


def test_the_same_node_is_given_every_time() -> None:
    nodes = SshNodes(NodesFile(nodes=(entry(),)), 10)
    assert nodes[NodeName("gpu-00")] is nodes[NodeName("gpu-00")]


def test_paramiko_and_invoke_are_not_loaded_before_a_connection() -> None:
    code = (
        "import sys, k3deploy.adapters.ssh as ssh; from k3deploy.domain.nodes_file import *; "
        "ssh.SshNodes(NodesFile(nodes=(NodeEntry(name='a', address='b'),)), 1)['a']; print('paramiko' in sys.modules); "
        "from k3deploy.adapters.ssh.paramiko_loader import load; load(); import paramiko; "
        "print('invoke' in sys.modules); import invoke; print(invoke.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "invoke"]
