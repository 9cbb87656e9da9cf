"""A small HTTP/1.1 server: a thread for each connection, few connections for each client, files sent by the kernel."""

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import responses
from typing import Any, NamedTuple, Protocol

from k3deploy.remote.share_request import BODY_MOST_BYTES, BadRequest, Head, Inbox, Patience

# A receiver that takes less than this within `Patience.answer_s` has gone without a word: its place is for others.
_SEND_LEAST_BYTES = 1 << 20
_SENDFILE_BYTES = 4 << 20
_HANG_UP_S = 1.0
# A peer has up to 16 receivers and a few questions at a time; whoever is no peer is told so, a few at a time.
_CONNECTIONS_OF_A_PEER = 48
_CONNECTIONS_OF_STRANGERS = 8
_PATIENCE = Patience()


class Piece(NamedTuple):
    """Bytes of an open file, whose descriptor is closed when they are out."""

    descriptor: int
    offset: int
    length_bytes: int


@dataclass(frozen=True)
class Answer:
    """`piece` goes out after `body`; then `done` is told how many bytes of it did, whatever happened."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    piece: Piece | None = None
    done: Callable[[int], None] | None = None


def json_answer(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    text = json.dumps(body, separators=(",", ":")).encode()
    return Answer(status, text, {"Content-Type": "application/json", **(headers or {})})


def error_answer(status: int, what: str, headers: Mapping[str, str] | None = None) -> Answer:
    return json_answer({"error": what}, status, headers)


class App(Protocol):
    """What a server serves."""

    def is_peer(self, address: str) -> bool:
        """Whether that client may have many connections."""

    def refusal(self, head: Head) -> Answer | None:
        """The answer to a request that is not let in, given before its body is read; None for one that is."""

    def answer(self, head: Head, body: bytes) -> Answer:
        """The answer to a request that was let in."""


class HttpServer:
    """Serves `app` on a bound socket until it is closed."""

    def __init__(self, listener: socket.socket, app: App, patience: Patience = _PATIENCE) -> None:
        self._listener = listener
        self._app = app
        self._patience = patience
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        listener.listen(128)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no new connections. Those that are open end with the process."""
        self._is_closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # Linux: wakes the thread that accepts
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, (address, *_) = self._listener.accept()
            except OSError:  # we are closing, the client has gone already, or there are no descriptors for a moment
                self._is_closed.wait(0.01)
                continue
            client, most = (
                (address, _CONNECTIONS_OF_A_PEER) if self._app.is_peer(address) else ("", _CONNECTIONS_OF_STRANGERS)
            )
            with self._lock:
                has_room = self._open[client] < most
                self._open[client] += has_room
            if has_room:
                threading.Thread(target=self._serve, args=(connection, address, client), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket, address: str, client: str) -> None:
        try:
            # A connection that breaks is for the other side to notice: it asks again, or asks somebody else.
            with contextlib.suppress(OSError), connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                inbox = Inbox(connection, address, self._patience)
                while self._exchange(connection, inbox):
                    pass
        finally:
            with self._lock:
                self._open[client] -= 1

    def _exchange(self, connection: socket.socket, inbox: Inbox) -> bool:
        """One request and its answer; False when it was the last one."""
        is_last = True
        try:
            head = inbox.head()
            if head is None:
                return False
            answer = self._app.refusal(head)
            if answer is None:
                answer = self._app.answer(head, inbox.body(head))
                is_last = head.is_last
        except BadRequest as bad:
            answer = error_answer(bad.status, bad.what)
        _send(connection, answer, self._patience.answer_s, is_last=is_last)
        if is_last:
            _hang_up(connection)
        return not is_last


def _send(connection: socket.socket, answer: Answer, wait_s: float, *, is_last: bool) -> None:
    piece, sent = answer.piece, 0
    try:
        length = len(answer.body) + (piece.length_bytes if piece else 0)
        headers = {"Content-Length": str(length), **answer.headers, **({"Connection": "close"} if is_last else {})}
        lines = [f"HTTP/1.1 {answer.status} {responses[answer.status]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.settimeout(wait_s)
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body)
        for part_bytes in _sent_parts(connection, piece, wait_s) if piece else ():
            sent += part_bytes
    finally:
        if piece:
            os.close(piece.descriptor)
        if answer.done:
            answer.done(sent)


def _sent_parts(connection: socket.socket, piece: Piece, wait_s: float) -> Iterator[int]:
    """Bytes handed to the kernel, part by part. Raises TimeoutError for a receiver that has stopped taking them."""
    writable = select.poll()
    writable.register(connection, select.POLLOUT)
    offset, end = piece.offset, piece.offset + piece.length_bytes
    marked, deadline = offset, time.monotonic() + wait_s
    while offset < end:
        if not writable.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        with contextlib.suppress(BlockingIOError):
            sent = os.sendfile(connection.fileno(), piece.descriptor, offset, min(end - offset, _SENDFILE_BYTES))
            if sent == 0:
                raise ConnectionAbortedError  # the file has become shorter: the receiver must not wait for the rest
            offset += sent
            yield sent
        if offset - marked >= _SEND_LEAST_BYTES:
            marked, deadline = offset, time.monotonic() + wait_s


def _hang_up(connection: socket.socket) -> None:
    """Hang up so that the last word arrives: closing over bytes that were not read would reset the connection."""
    connection.shutdown(socket.SHUT_WR)
    deadline, unread = time.monotonic() + _HANG_UP_S, BODY_MOST_BYTES
    while unread > 0 and (wait_s := deadline - time.monotonic()) > 0:
        connection.settimeout(wait_s)
        part = connection.recv(65536)
        if not part:
            return
        unread -= len(part)
