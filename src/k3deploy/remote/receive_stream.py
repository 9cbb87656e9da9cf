"""Ask one source for a file from some byte on: a peer's share, or a URL. What can be wrong with it is told by class."""

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from k3deploy.remote.fetch_failure import ABSENT, BUSY, NO_ACCESS, RETRY, failure
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.landing import BLOCK_BYTES
from k3deploy.remote.share_protocol import BLOBS, Me

# A peer is one switch away. A URL may be behind a store that first has to find the file.
_PEER_CONNECT_S = 2.0
_PEER_SILENT_S = 5.0
_URL_SILENT_S = 30.0
_LONGEST_WAIT_S = 600.0
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class Unavailable(Exception):
    """This source does not give the file; `failure` says why, in the shape in which workers say it."""

    def __init__(self, kind: str, text: str, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.failure = failure(kind, text, wait_s)


class PeerStreams:
    """Asks shares. Each listens on one of a few ports, which is remembered."""

    def __init__(self, me: Me) -> None:
        self._me = me
        self._known: dict[str, int] = {}

    @contextmanager
    def open(self, source: dict[str, Any], file: Wanted, offset: int) -> Iterator[http.client.HTTPResponse]:
        """`source`: address, ports. Raises Unavailable."""
        connection, response = self._find(source["address"], source["ports"], file, offset)
        try:
            yield response
        finally:
            connection.close()

    def _find(
        self, address: str, ports: list[int], file: Wanted, offset: int
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        refused = Unavailable(RETRY, "it has no port")
        for port in sorted(ports, key=lambda port: port != self._known.get(address)):
            connection = self._me.connection(address, port, _PEER_CONNECT_S)
            try:
                response = self._ask(connection, file, offset)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                refused = Unavailable(RETRY, f"{type(error).__name__}: {error}")
                continue
            if response.status in (200, 206):
                self._known[address] = port
                return connection, response
            connection.close()
            refused = _no(response.status, response.headers)
            if refused.failure["kind"] == BUSY:
                break  # else another run's share, or somebody else's server, may hold this port
        raise refused

    def _ask(self, connection: http.client.HTTPConnection, file: Wanted, offset: int) -> http.client.HTTPResponse:
        connection.connect()
        connection.sock.settimeout(_PEER_SILENT_S)
        headers = {"Authorization": self._me.authorization, "Connection": "close"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        connection.request("GET", BLOBS + file.digest, headers=headers)
        return connection.getresponse()


@contextmanager
def url_stream(url: str, offset: int) -> Iterator[http.client.HTTPResponse]:
    """Through the node's proxy where it has one. The URL is a secret: no error names it. Raises Unavailable."""
    import urllib.error
    import urllib.request  # late: only a mirror needs it, and it is slow to load

    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    try:
        response = urllib.request.urlopen(request, timeout=_URL_SILENT_S)
    except urllib.error.HTTPError as error:
        with error:
            raise _no(error.code, error.headers) from None
    except OSError as error:
        raise Unavailable(RETRY, f"{type(error).__name__}: {getattr(error, 'reason', error)}") from None
    except http.client.HTTPException as error:  # its text may quote the URL
        raise Unavailable(RETRY, type(error).__name__) from None
    with response:
        yield response


def first_byte(response: http.client.HTTPResponse, file: Wanted, offset: int) -> int:
    """Where the answer begins: at `offset`, or at 0 from a server that knows no ranges. Raises Unavailable."""
    if response.status == 200:
        begins, total = 0, response.length
    else:
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        begins, total = (int(match[1]), int(match[3])) if match else (-1, None)
    if begins not in (0, offset) or total != file.size_bytes:
        raise Unavailable(RETRY, f"it answered with {total} bytes from {begins}, wanted {file.size_bytes}")
    return begins


def next_piece(response: http.client.HTTPResponse) -> bytes:
    """What has come since the last one, at least a byte. Raises Unavailable."""
    try:
        piece = response.read1(BLOCK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(RETRY, f"{type(error).__name__}: {error}") from error
    if not piece:
        raise Unavailable(RETRY, "it broke off")
    return piece


def _no(status: int, headers: Any) -> Unavailable:
    kinds = {401: NO_ACCESS, 403: NO_ACCESS, 404: ABSENT, 410: ABSENT, 429: BUSY, 503: BUSY}
    try:
        wait_s = min(float(headers.get("Retry-After", "0")), _LONGEST_WAIT_S)
    except ValueError:  # a date: our own pauses will do
        wait_s = 0.0
    return Unavailable(kinds.get(status, RETRY), f"HTTP status {status}", wait_s)
