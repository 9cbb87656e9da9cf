"""One open connection and its channels: sessions under the server's limit, and TCP connections through it."""

import contextlib
import threading
import time
from collections.abc import Iterator

import paramiko

from k3deploy.adapters.deadline import Deadline
from k3deploy.adapters.ssh import failures
from k3deploy.adapters.ssh.route import Route
from k3deploy.domain.errors import NodeError

SESSIONS = 8  # below sshd's MaxSessions (10), with room for one that the server has not cleared away yet
REFUSALS = 5
_PROHIBITED = 1  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED (RFC 4254, 5.1)
OPEN_TIMEOUT_S = 15.0  # a live server opens a channel in milliseconds; a dead link never does


class SessionLost(Exception):
    """The connection is gone, or does not answer: nothing was started on this session."""


class Connection:
    """Safe to share between threads."""

    def __init__(self, transport: paramiko.Transport, route: Route) -> None:
        self._transport = transport
        self._slots = _Slots(SESSIONS)
        self.route = route

    @property
    def is_alive(self) -> bool:
        return self._transport.is_active()

    @contextlib.contextmanager
    def session(self, deadline: Deadline) -> Iterator[paramiko.Channel]:
        """A session channel, closed on leaving. Raises SessionLost, NodeTimeout, or NodeError when it is refused."""
        channel = self._open_session(deadline)
        try:
            yield channel
        finally:
            channel.close()
            self._slots.release()

    def open_tcp(self, host: str, port: int, timeout_s: float) -> paramiko.Channel:
        """A connection from there to host:port. Not counted as a session by sshd, so not limited here either.

        Raises ConnectionRefusedError when the far end or the server's policy refuses, TimeoutError, OSError.
        """
        limit = Deadline(max(timeout_s, 0.001))
        try:
            return self._transport.open_channel(
                "direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=limit.remaining_s
            )
        except (paramiko.SSHException, EOFError) as err:
            if not self.is_alive:
                raise ConnectionResetError(f"the connection to {self.route.label} is gone") from err
            if limit.is_over:
                raise TimeoutError(f"no connection to {host}:{port} within {limit.text}") from err
            if isinstance(err, paramiko.ChannelException) and err.code == _PROHIBITED:
                raise PermissionError(f"{self.route.label} forbids TCP forwarding (AllowTcpForwarding)") from err
            raise ConnectionRefusedError(f"{self.route.label} cannot connect to {host}:{port}") from err

    def close(self) -> None:
        """At once; what still runs on it ends with SessionLost or a broken read."""
        self._transport.close()
        self._transport.sock.close()

    def _open_session(self, deadline: Deadline) -> paramiko.Channel:
        refusals_alone = 0
        while True:
            if not self._slots.acquire(deadline.remaining_s):
                raise failures.too_long(
                    self.route, "waiting for a free session", deadline.text, detail="the open ones are all in use"
                )
            limit = Deadline(min(OPEN_TIMEOUT_S, max(deadline.remaining_s, 0.001)))
            try:
                return self._transport.open_session(timeout=limit.remaining_s)
            except (paramiko.SSHException, EOFError, OSError) as err:
                # By the facts, not by the type: paramiko 5.1 keeps one exception for all threads of a connection, so
                # the ChannelException of a refusal may end up with another thread.
                if not self.is_alive or limit.is_over:
                    self._slots.release()
                    raise SessionLost(str(err) or type(err).__name__) from err
                # The server allows fewer sessions than we thought (MaxSessions): wait for one of ours to end.
                if self._slots.shrink():
                    continue
                refusals_alone += 1
                time.sleep(0.1)  # it may still be clearing the last session away
                if refusals_alone == REFUSALS or deadline.is_over:
                    raise NodeError(
                        what=f"{self.route.label}: the server opens no session",
                        why=f"it answered: {err}",
                        fix="allow sessions for this user in sshd_config (MaxSessions, ForceCommand)",
                        context=failures.context(self.route),
                    ) from err
            except BaseException:
                self._slots.release()
                raise


class _Slots:
    """A semaphore whose limit can be lowered when the server turns out to allow less."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_use = 0
        self._changed = threading.Condition()

    def acquire(self, timeout_s: float) -> bool:
        with self._changed:
            is_free = self._changed.wait_for(lambda: self._in_use < self._limit, timeout_s)
            self._in_use += int(is_free)
            return is_free

    def release(self) -> None:
        with self._changed:
            self._in_use -= 1
            self._changed.notify_all()

    def shrink(self) -> bool:
        """Give the slot back that the server refused, and learn from it. False when it was the only one in use."""
        with self._changed:
            self._in_use -= 1
            self._limit = max(1, min(self._limit, self._in_use))
            self._changed.notify_all()
            return self._in_use > 0
