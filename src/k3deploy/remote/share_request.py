"""Read HTTP/1.1 requests from a client that is not trusted: strictly, with limits on how much and for how long."""

import re
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

HEAD_MOST_BYTES = 16 << 10
BODY_MOST_BYTES = 256 << 10

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.1")
_HEADER = re.compile(rb"([0-9A-Za-z!#$%&'*+.^_`|~-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")


class Patience(NamedTuple):
    """How long a client may wait before it asks, may take for one request, and for a mebibyte of the answer."""

    idle_s: float = 60.0
    request_s: float = 10.0
    answer_s: float = 30.0


class Head(NamedTuple):
    """A request without its body, from `address`. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    address: str

    @property
    def is_last(self) -> bool:
        """Whether the client wants to hang up after the answer."""
        return self.headers.get("connection", "").lower() == "close"


class BadRequest(Exception):
    """The bytes of a connection make no sense from here on: answer with `status`, then hang up."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status
        self.what = what


class Inbox:
    """What one client sends on its connection."""

    def __init__(self, connection: socket.socket, address: str, patience: Patience) -> None:
        self._connection = connection
        self._address = address
        self._patience = patience
        self._held = b""

    def head(self) -> Head | None:
        """The next request's head; None when the client has hung up, or says nothing any more. Raises BadRequest."""
        if not self._held and not self._is_more(self._patience.idle_s):
            return None
        deadline = time.monotonic() + self._patience.request_s
        while b"\r\n\r\n" not in self._held:
            if len(self._held) > HEAD_MOST_BYTES:
                raise BadRequest(431, f"the request's head is longer than {HEAD_MOST_BYTES} bytes")
            if not self._is_more(deadline - time.monotonic()):
                raise BadRequest(408, "the request did not come to an end")
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        return _parsed(head, self._address)

    def body(self, head: Head) -> bytes:
        """The body that belongs to a head. Raises BadRequest."""
        length = head.headers.get("content-length", "0" if head.method == "GET" else "")
        if "transfer-encoding" in head.headers or not re.fullmatch("[0-9]{1,18}", length):
            raise BadRequest(411, "the request needs a Content-Length")
        count = int(length)
        if count > BODY_MOST_BYTES:
            raise BadRequest(413, f"the body is longer than {BODY_MOST_BYTES} bytes")
        deadline = time.monotonic() + self._patience.request_s
        while len(self._held) < count:
            if not self._is_more(deadline - time.monotonic()):
                raise BadRequest(408, "the body is shorter than its Content-Length")
        body, self._held = self._held[:count], self._held[count:]
        return body

    def _is_more(self, wait_s: float) -> bool:
        """Take in what comes next; False when nothing did."""
        self._connection.settimeout(max(0.001, wait_s))
        try:
            part = self._connection.recv(65536)
        except TimeoutError:
            return False
        self._held += part
        return bool(part)


def _parsed(text: bytes, address: str) -> Head:
    first, *lines = text.split(b"\r\n")
    request = _REQUEST_LINE.fullmatch(first)
    if request is None:
        raise BadRequest(400, "this is no HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        name = header[1].decode().lower() if header else ""
        # Of a header that comes twice nobody can tell which one counts.
        if header is None or name in headers:
            raise BadRequest(400, "a header is malformed, or comes twice")
        headers[name] = header[2].decode("latin-1")
    return Head(request[1].decode(), request[2].decode(), headers, address)
