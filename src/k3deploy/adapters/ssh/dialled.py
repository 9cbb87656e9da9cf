"""A connection that starts on the node, as a socket-like object for http.client and the like."""

import io
from typing import Any


class DialledSocket:
    """Wraps a direct-tcpip channel. `settimeout` limits each read and write in seconds; TimeoutError when it passes."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def settimeout(self, timeout_s: float | None) -> None:
        self._channel.settimeout(timeout_s)

    def recv(self, size: int) -> bytes:
        data: bytes = self._channel.recv(size)
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0) -> int:
        data = self.recv(nbytes or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def send(self, data: bytes) -> int:
        sent: int = self._channel.send(data)
        return sent

    def sendall(self, data: bytes) -> None:
        self._channel.sendall(data)

    def makefile(self, mode: str = "rb", _buffering: int = -1) -> io.BufferedReader:
        if mode not in ("r", "rb"):
            raise ValueError("only reading is wrapped in a file; write with sendall")
        return io.BufferedReader(_Raw(self))

    def close(self) -> None:
        self._channel.close()


class _Raw(io.RawIOBase):
    """Closing the file leaves the socket open, as with socket.makefile."""

    def __init__(self, sock: DialledSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.recv_into(buffer)
