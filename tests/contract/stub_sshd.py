"""An SSH server made for misbehaving: drops connections, limits sessions, answers commands as a test says, or never."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import paramiko
from paramiko.common import (
    AUTH_PARTIALLY_SUCCESSFUL,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_CONNECT_FAILED,
    OPEN_SUCCEEDED,
)

from k3deploy.adapters.ssh.host_key import HostKey
from k3deploy.domain.nodes_file import NodeEntry

HOST = "127.0.0.1"

Reply = tuple[int | None, bytes, bytes]  # exit code (None: never any), stdout, stderr


@dataclass
class StubSshd:
    """`answer(line)` decides what a command prints; `drops` connections are closed before a banner is sent."""

    answer: Callable[[str], Reply]
    drops: int = 0
    sessions: int = 100
    partial: bool = False
    user: str = "ops"
    is_mute: bool = False
    connections: int = 0
    lines: list[str] = field(default_factory=list)
    most_sessions: int = 0

    def __post_init__(self) -> None:
        self.key = paramiko.ECDSAKey.generate()
        self._open = 0
        self._lock = threading.Lock()
        self._transports: list[paramiko.Transport] = []
        self._held: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def entry(self, key: str, **changes: object) -> NodeEntry:
        pin = HostKey(self.key.get_name(), self.key.asbytes()).line
        values = {"name": "gpu-00", "address": HOST, "port": self.port, "user": self.user, "key": key, "host_key": pin}
        return NodeEntry.model_validate({**values, **changes})

    def close(self) -> None:
        self._listener.close()
        for sock in self._held:
            sock.close()
        for transport in self._transports:
            transport.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.connections <= self.drops:
                connection.close()
            elif self.is_mute:
                self._held.append(connection)
            else:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        transport = paramiko.Transport(connection)
        transport.add_server_key(self.key)
        self._transports.append(transport)
        with suppress(paramiko.SSHException, EOFError):
            transport.start_server(event=threading.Event(), server=_Server(self))

    def opened(self) -> bool:
        with self._lock:
            if self._open >= self.sessions:
                return False
            self._open += 1
            self.most_sessions = max(self.most_sessions, self._open)
            return True

    def run(self, channel: paramiko.Channel, line: str) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):
            self.lines.append(line)
            code, out, err = self.answer(line)
            if code is not None:
                channel.sendall(out)
                channel.sendall_stderr(err)
                channel.send_exit_status(code)
                channel.shutdown_write()
                while channel.recv(65536):
                    pass
                channel.close()
        if code is not None:
            with self._lock:
                self._open -= 1


class _Server(paramiko.ServerInterface):
    def __init__(self, stub: StubSshd) -> None:
        self._stub = stub

    def get_allowed_auths(self, username: str) -> str:
        return "publickey,keyboard-interactive" if self._stub.partial else "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_PARTIALLY_SUCCESSFUL if self._stub.partial else AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if self._stub.opened():
            return OPEN_SUCCEEDED
        return OPEN_FAILED_CONNECT_FAILED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._stub.run, args=(channel, command.decode()), daemon=True).start()
        return True


@contextmanager
def running(answer: Callable[[str], Reply], **settings: object) -> Iterator[StubSshd]:
    stub = StubSshd(answer, **settings)  # type: ignore[arg-type]
    try:
        yield stub
    finally:
        stub.close()
