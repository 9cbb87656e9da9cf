"""`k3deploy trust` against real servers: what is shown, what is written, and what is never written."""

import getpass
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3deploy.adapters.nodes_file import load_nodes
from k3deploy.adapters.ssh.host_key import HostKey
from k3deploy.cli.app import run
from tests.contract import sshd
from tests.contract.sshd import HOST, Sshd

OTHER = "SHA256:T9pzNXsw3MxuGHBmXvxUNNqN5b/wjmng0Sx8XYEnzno"
OTHER_LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA0LoUtLQ41adCKmTJBF+Sp+YZRgVeYoYBq0HsZgkgsh"


@pytest.fixture(scope="module")
def second(needs_sshd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd"), host_key_kinds=("ed25519", "ecdsa")) as running:
        yield running


def write(path: Path, *servers: Sshd, host_key: str | None = None) -> Path:
    lines = ["nodes:  # ours"]
    for number, server in enumerate(servers):
        lines += [f"  - name: gpu-{number:02d}", f"    address: {HOST}", f"    port: {server.port}"]
        lines += [f"    user: {getpass.getuser()}"]
        lines += [f"    host_key: {host_key}"] if host_key else []
    path.write_text("\n".join(lines) + "\n")
    return path


def trust(path: Path, *words: str) -> int:
    return run(["trust", *words, "--nodes", str(path)])


def pins(path: Path) -> list[str | None]:
    return [entry.host_key for entry in load_nodes(path).nodes]


def test_without_a_fingerprint_keys_are_shown_and_nothing_is_written(
    server: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "nodes.yaml", server)
    before = path.read_text()
    assert trust(path, "gpu-00") == 5
    out, err = capsys.readouterr()
    assert f"gpu-00  ssh-ed25519  {server.host_key.fingerprint}" in out
    assert f"run: k3deploy trust gpu-00 --fingerprint {server.host_key.fingerprint}" in err
    assert path.read_text() == before


def test_the_right_fingerprint_pins_the_key(server: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "nodes.yaml", server)
    assert trust(path, "gpu-00", "--fingerprint", server.host_key.fingerprint) == 0
    assert "pinned now" in capsys.readouterr().out
    assert pins(path) == [server.host_key.line]
    assert path.read_text().startswith("nodes:  # ours\n")
    assert trust(path, "gpu-00") == 0
    assert trust(path, "--all") == 0


def test_another_fingerprint_pins_nothing(server: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "nodes.yaml", server)
    assert trust(path, "gpu-00", "--fingerprint", OTHER) == 3
    assert "it shows no key with this fingerprint" in capsys.readouterr().err
    assert pins(path) == [None]


def test_a_pin_changes_only_by_the_new_fingerprint(
    server: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "nodes.yaml", server, host_key=OTHER_LINE)
    assert trust(path, "gpu-00") == 5
    assert "gpu-00: not the key on record" in capsys.readouterr().err
    assert trust(path, "gpu-00", "--fingerprint", OTHER) == 3
    assert pins(path) == [OTHER_LINE]
    assert trust(path, "gpu-00", "--fingerprint", server.host_key.fingerprint) == 0
    assert pins(path) == [server.host_key.line]


def test_the_key_that_is_named_is_pinned_whatever_its_type(server: Sshd, second: Sshd, tmp_path: Path) -> None:
    path = write(tmp_path / "nodes.yaml", server, second)
    ecdsa = HostKey.parse((second.folder / "host_ecdsa.pub").read_text())
    assert trust(path, "--all", "--fingerprint", server.host_key.fingerprint, "--fingerprint", ecdsa.fingerprint) == 0
    assert pins(path) == [server.host_key.line, ecdsa.line]


def test_one_machine_that_does_not_answer_does_not_hide_the_others(
    server: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "nodes.yaml", server)
    path.write_text(path.read_text() + f"  - name: gpu-01\n    address: {HOST}\n    port: {sshd.free_port()}\n")
    assert trust(path, "--all", "--fingerprint", server.host_key.fingerprint) == 3
    out, err = capsys.readouterr()
    assert "pinned now" in out
    assert "gpu-01: no SSH connection" in err
    assert pins(path) == [server.host_key.line, None]


def test_programs_get_json(server: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "nodes.yaml", server)
    assert trust(path, "gpu-00", "--fingerprint", server.host_key.fingerprint, "--output", "json") == 0
    key = {"type": "ssh-ed25519", "fingerprint": server.host_key.fingerprint, "state": "pinned now"}
    assert json.loads(capsys.readouterr().out) == [{"node": "gpu-00", "address": HOST, "keys": [key], "error": None}]


@pytest.mark.parametrize(("words", "code"), [((), 2), (("gpu-00", "--all"), 2), (("gpu-07",), 1)])
def test_command_lines_that_say_nothing_clear(server: Sshd, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    path = write(tmp_path / "nodes.yaml", server)
    assert trust(path, *words) == code
