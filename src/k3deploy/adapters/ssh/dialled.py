"""A connection that starts on the node, as a socket-like object."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko


class DialledSocket:
    """Wraps a direct-tcpip channel. `settimeout` limits each read and write in seconds.

    Raises TimeoutError when that time is over, and other OSErrors when the connection is gone.
    """

    def __init__(self, channel: "paramiko.Channel") -> None:
        self._channel = channel

    def settimeout(self, timeout_s: float | None) -> None:
        self._channel.settimeout(timeout_s)

    def recv(self, size: int) -> bytes:
        with _as_socket_errors():
            return self._channel.recv(size)

    def send(self, data: bytes) -> int:
        with _as_socket_errors():
            return self._channel.send(data)

    def sendall(self, data: bytes) -> None:
        with _as_socket_errors():
            self._channel.sendall(data)

    def close(self) -> None:
        self._channel.close()


@contextlib.contextmanager
def _as_socket_errors() -> Iterator[None]:
    from paramiko import SSHException

    try:
        yield
    except (SSHException, EOFError) as err:
        raise ConnectionResetError(str(err) or "the SSH connection is gone") from err
