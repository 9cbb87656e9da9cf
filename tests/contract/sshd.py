"""A real sshd on a loopback port, as the user who runs the tests; nothing of the machine's own is used or changed."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from k3deploy.adapters.ssh.host_key import HostKey
from k3deploy.domain.nodes_file import NodeEntry, NodesFile

HOST = "127.0.0.1"
READY_TIMEOUT_S = 15.0
ENCLOSE = Path(__file__).parents[1] / "lab" / "loopback_files" / "enclose"


def sshd_path() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass
class Sshd:
    """`key` is the private key that it accepts, `host_key` what it shows. Its processes see `HOME` in `folder`."""

    folder: Path
    port: int
    key: Path
    host_key: HostKey
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def entry(self, name: str = "gpu-00", **changes: object) -> NodeEntry:
        values: dict[str, object] = {
            "name": name,
            "address": HOST,
            "port": self.port,
            "user": getpass.getuser(),
            "key": str(self.key),
            "host_key": self.host_key.line,
            **changes,
        }
        return NodeEntry.model_validate(values)

    def nodes_file(self, **changes: object) -> NodesFile:
        return NodesFile(nodes=(self.entry("gpu-00", **changes),))

    def cut_sessions(self) -> None:
        """Kill the processes that serve open connections, as a reset link would look; new ones are still taken."""
        for pid in _children(self.process.pid):
            with suppress(ProcessLookupError):  # it may have ended by itself just now
                os.kill(pid, signal.SIGKILL)


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)], check=True)
    return path


@contextmanager
def running(
    folder: Path,
    *lines: str,
    host_key_kinds: tuple[str, ...] = ("ed25519",),
    path: str = "",
    sftp: bool = True,
    authorized: str = "",
) -> Iterator[Sshd]:
    """`lines` are added to its configuration. The first host key kind is the one in `host_key`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "home").mkdir()
    key = make_key(folder / "key")
    host_keys = [make_key(folder / f"host_{kind}", kind) for kind in host_key_kinds]
    port = free_port()
    config = [
        f"Port {port}",
        f"ListenAddress {HOST}",
        *(f"HostKey {path}" for path in host_keys),
        "PidFile none",
        f"AuthorizedKeysFile {authorized or f'{key}.pub'}",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        *(["Subsystem sftp internal-sftp"] if sftp else []),
        f"SetEnv HOME={folder / 'home'}" + (f" PATH={path}" if path else ""),
        *lines,
    ]
    (folder / "sshd_config").write_text("\n".join(config) + "\n")
    argv = [str(sshd_path()), "-D", "-e", "-f", str(folder / "sshd_config")]
    if os.geteuid() == 0:
        # Run by root it wants /run/sshd: it gets a /run of its own, and cannot write outside of its folder and /tmp.
        argv = ["unshare", "--mount", "--propagation=private", str(ENCLOSE), str(folder), *argv]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    shown = HostKey.parse(host_keys[0].with_suffix(".pub").read_text())
    server = Sshd(folder, port, key, shown, process)
    try:
        _wait(server)
        yield server
    finally:
        server.cut_sessions()
        process.terminate()
        process.wait(10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(server: Sshd) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and server.process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, server.port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"sshd did not come up: {server.log}")


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
