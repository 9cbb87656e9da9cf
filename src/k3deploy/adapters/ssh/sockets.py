"""The byte stream under a connection: TCP without its two stalls, or a program that connects for us."""

import contextlib
import socket
import subprocess
from collections.abc import Sequence

from k3deploy.adapters.deadline import Deadline

# A peer that acknowledges nothing for this long is gone. paramiko's keepalives ask for no answer, so without
# this a cut link would be noticed only after the kernel's 15 minutes of retransmission.
DEAD_PEER_MS = 30_000

_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux only
_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux only


class QuickSocket:
    """The part of a socket that paramiko uses, tuned for small messages.

    TCP_NODELAY: else each further channel on a connection waits 45 ms for the peer's acknowledgement.
    TCP_QUICKACK after each read (the kernel forgets it): else the first channel waits 44 ms for sshd, which
    waits for ours. Measured with paramiko 5.1 and OpenSSH 9.2; together they halve a short task.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._is_tcp = sock.family in (socket.AF_INET, socket.AF_INET6)
        self._closed = False
        if self._is_tcp:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _USER_TIMEOUT is not None:
                sock.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, DEAD_PEER_MS)

    def recv(self, size: int) -> bytes:
        data = self._sock.recv(size)
        if self._is_tcp and _QUICKACK is not None:
            with contextlib.suppress(OSError):  # the peer may be gone already; the next read will say so
                self._sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        return data

    def send(self, data: bytes) -> int:
        return self._sock.send(data)

    def settimeout(self, timeout_s: float | None) -> None:
        self._sock.settimeout(timeout_s)

    def fileno(self) -> int:
        return self._sock.fileno()

    def getpeername(self) -> object:
        return self._sock.getpeername()

    def close(self) -> None:
        """Also wakes the thread that reads: `close` alone would leave it waiting for its next poll."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class ProxySocket(QuickSocket):
    """A ProxyCommand's standard input and output. The command ends with the connection."""

    def __init__(self, argv: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        super().__init__(ours)

    def close(self) -> None:
        super().close()
        self._process.terminate()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=2)


def connect_tcp(host: str, port: int, deadline: Deadline) -> QuickSocket:
    """Try every address of the name in turn. Raises OSError: the last address's, or the resolver's."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(deadline.remaining_s, 0.001))
            sock.connect(address)
            return QuickSocket(sock)
        except OSError as err:
            sock.close()
            failure = err
    raise failure or OSError(f"{host} has no address")
