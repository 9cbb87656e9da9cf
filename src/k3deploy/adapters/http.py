"""HTTP to an engine from its own node's network: http.client over a connection that starts there.

http.client brings TLS and mail parsing with it, so it is loaded with the first request: most runs make none.
"""

import io
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from k3deploy.contracts import HttpResponse, Nodes
from k3deploy.domain.errors import EngineError
from k3deploy.domain.names import NodeName

BODY_LIMIT_BYTES = 64 << 20


class NodeHttp:
    """Implements `contracts.Http`. Plain HTTP only, which is all that engines speak; one connection per request."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def request(
        self,
        method: str,
        url: str,
        *,
        via: NodeName,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float,
    ) -> HttpResponse:
        """`timeout_s` covers all: connecting, the answer, and the last byte of its body.

        Any status is an answer. Raises EngineError when there is none, and what the node's connection raises.
        """
        import http.client

        host, port, target = _parts(url)
        ends = time.monotonic() + timeout_s
        try:
            sock = self._nodes[via].dial(host, port, timeout_s=timeout_s)
            connection = http.client.HTTPConnection(host, port)
            connection.sock = _Limited(sock, ends)  # connected already, so it makes no connection of its own
            try:
                connection.request(method, target, body=body, headers=dict(headers or {}))
                response = connection.getresponse()
                data = response.read(BODY_LIMIT_BYTES + 1)
                if response.length and len(data) <= BODY_LIMIT_BYTES:
                    # http.client tells this only of a read without a size.
                    raise http.client.IncompleteRead(data, response.length)
            finally:
                connection.close()
                sock.close()
        except ConnectionRefusedError as err:
            raise _failed(url, via, "nothing listens there", "look at the engine's log: k3deploy logs") from err
        except TimeoutError as err:
            raise _failed(
                url, via, f"no complete answer within {timeout_s:g} s", "look at the engine's log: k3deploy logs"
            ) from err
        except (OSError, http.client.HTTPException) as err:
            raise _failed(
                url,
                via,
                f"the connection ended early: {str(err) or type(err).__name__}",
                "look at its log: k3deploy logs",
            ) from err
        if len(data) > BODY_LIMIT_BYTES:
            raise _failed(
                url, via, f"the answer has more than {BODY_LIMIT_BYTES} bytes", "check that this is the engine's port"
            )
        return HttpResponse(response.status, {name.lower(): value for name, value in response.getheaders()}, data)


class _Limited:
    """A socket whose every read and write gets only the time that is left of the whole request."""

    def __init__(self, sock: Any, ends: float) -> None:
        self._sock = sock
        self._ends = ends

    def sendall(self, data: bytes) -> None:
        self._limit()
        self._sock.sendall(data)

    def recv(self, size: int) -> bytes:
        self._limit()
        data: bytes = self._sock.recv(size)
        return data

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reading(self))

    def close(self) -> None:
        """Nothing: http.client closes after the headers already, and the body still has to come."""

    def _limit(self) -> None:
        left_s = self._ends - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the time for the whole request is over")
        self._sock.settimeout(left_s)


class _Reading(io.RawIOBase):
    def __init__(self, sock: _Limited) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._sock.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _parts(url: str) -> tuple[str, int, str]:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"not a plain HTTP address: {url!r}")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.hostname, parts.port or 80, target


def _failed(url: str, via: NodeName, why: str, fix: str) -> EngineError:
    return EngineError(what=f"no answer from {url}", why=why, fix=fix, context={"node": via, "url": url})
