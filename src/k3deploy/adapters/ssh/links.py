"""A machine's connection over time: opened when first needed, shared by threads, opened again when it died idle."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from k3deploy.adapters.deadline import Deadline
from k3deploy.adapters.ssh import failures, paramiko_loader
from k3deploy.adapters.ssh.route import Route
from k3deploy.domain.command import Command
from k3deploy.domain.errors import K3Error, NodeError
from k3deploy.domain.names import NodeName

if TYPE_CHECKING:
    import paramiko

    from k3deploy.adapters.ssh.connection import Connection
    from k3deploy.adapters.ssh.process import Process

ANSWERS_TIMEOUT_S = 5.0  # a machine that answers at all says so within this


class Link:
    """One machine. `find_route` is asked once, at the first use: it may read the ssh configuration."""

    def __init__(self, name: str, find_route: Callable[[], Route], jumps: "Jumps", connect_timeout_s: float) -> None:
        self.name = NodeName(name)
        self._find_route = find_route
        self._jumps = jumps
        self._connect_timeout_s = connect_timeout_s
        self._route: Route | None = None
        self._connection: Connection | None = None
        self._attempts = 0
        self._failure: K3Error | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def route(self) -> Route:
        """Known after the first connection attempt; found now if there was none."""
        if self._route is None:
            self._route = self._find_route()
        return self._route

    def connection(self, deadline: Deadline) -> "Connection":
        """The live connection. Threads that waited for an attempt of another one share its outcome, bad or good."""
        seen = self._attempts
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"{self.name} was closed")
            if self._connection is not None and self._connection.is_alive:
                return self._connection
            if self._attempts > seen and self._failure is not None:
                raise self._failure
            self._attempts += 1
            self._failure = None
            try:
                self._connection = self._connect(deadline)
            except K3Error as err:
                self._failure = err
                raise
            return self._connection

    def _connect(self, deadline: Deadline) -> "Connection":
        paramiko_loader.load()
        from k3deploy.adapters.ssh.connect import connect

        route = self.route
        limit = Deadline(min(self._connect_timeout_s, deadline.remaining_s))
        via = self._jumps.connection(route.via, limit) if route.via else None
        return connect(route, limit, via)

    @contextlib.contextmanager
    def session(self, deadline: Deadline, doing: str) -> Iterator["paramiko.Channel"]:
        """A session channel. What breaks or expires inside the block becomes NodeUnreachable or NodeTimeout."""
        with contextlib.ExitStack() as stack:
            channel = self._open(stack, deadline, doing)
            from paramiko import SSHException

            from k3deploy.adapters.ssh.process import Broken, Expired

            try:
                yield channel
            except Expired as err:
                stack.close()
                raise self._expired(deadline, doing, err.exit_code) from err
            except (Broken, SSHException, EOFError, OSError) as err:
                stack.close()
                if deadline.is_over:
                    raise self._expired(deadline, doing, None) from err
                why = str(err) or type(err).__name__
                raise failures.cut_off(self.route, doing, why, may_have_run=True) from err

    @contextlib.contextmanager
    def process(self, line: str, stdin: bytes, deadline: Deadline, doing: str) -> Iterator["Process"]:
        """A started command. Raises like `session`."""
        with self.session(deadline, doing) as channel:
            from k3deploy.adapters.ssh.process import Process

            with Process(channel, deadline).started(line, stdin) as process:
                yield process

    def open_tcp(self, host: str, port: int, deadline: Deadline) -> "paramiko.Channel":
        """From the machine to host:port. Raises ConnectionRefusedError and TimeoutError for what is beyond it."""
        for is_last in (False, True):
            connection = self.connection(deadline)
            try:
                return connection.open_tcp(host, port, deadline.remaining_s)
            except PermissionError as err:
                raise NodeError(
                    what=f"{self.name}: no connection through its SSH server to {host}:{port}",
                    why=str(err),
                    fix="set `AllowTcpForwarding yes` in its sshd_config",
                    context=failures.context(self.route),
                ) from err
            except ConnectionResetError as err:
                if is_last:
                    raise failures.cut_off(
                        self.route, f"connecting to {host}:{port}", str(err), may_have_run=False
                    ) from err
        raise AssertionError("the last round returns or raises")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self, stack: contextlib.ExitStack, deadline: Deadline, doing: str) -> "paramiko.Channel":
        """A channel on the live connection; on a new one when the old one turns out to be dead."""
        connection = self.connection(deadline)
        from k3deploy.adapters.ssh.connection import SessionLost

        try:
            return stack.enter_context(connection.session(deadline))
        except SessionLost:
            connection.close()
        try:
            return stack.enter_context(self.connection(deadline).session(deadline))
        except SessionLost as err:
            raise failures.cut_off(self.route, doing, str(err), may_have_run=False) from err

    def _expired(self, deadline: Deadline, doing: str, exit_code: int | None) -> K3Error:
        """Tell a command that hangs from a machine that is gone (the same silence) by asking it for one word."""
        if not self._answers():
            return failures.cut_off(
                self.route,
                doing,
                f"no answer within {deadline.text}, nor to a second question",
                may_have_run=True,
            )
        if exit_code is not None:
            detail = f"it ended with exit code {exit_code}, but something it started keeps its output open"
        else:
            detail = "the machine answers, so this command itself hangs"
        return failures.too_long(self.route, doing, deadline.text, detail=detail)

    def _answers(self) -> bool:
        connection = self._connection
        if connection is None:
            return False
        from paramiko import SSHException

        from k3deploy.adapters.ssh.connection import SessionLost
        from k3deploy.adapters.ssh.process import Broken, Expired, Process

        limit = Deadline(ANSWERS_TIMEOUT_S)
        try:
            with (
                connection.session(limit) as channel,
                Process(channel, limit).started(Command(("true",)).line(), b"") as asked,
            ):
                asked.exit_code()
        except (SessionLost, Broken, Expired, SSHException, EOFError, OSError, NodeError):
            connection.close()
            return False
        return True


class Jumps:
    """Connections to jump hosts, one for each, shared by all the nodes behind it."""

    def __init__(self, connect_timeout_s: float) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._links: dict[Route, Link] = {}
        self._lock = threading.Lock()

    def connection(self, route: Route, deadline: Deadline) -> "Connection":
        with self._lock:
            link = self._links.get(route)
            if link is None:
                link = self._links[route] = Link(route.label, lambda: route, self, self._connect_timeout_s)
        return link.connection(deadline)

    def close(self) -> None:
        with self._lock:
            links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()
