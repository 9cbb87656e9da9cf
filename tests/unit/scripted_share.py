"""A share whose tracker says what a test wants it to say."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def answer(**more: Any) -> dict[str, Any]:
    """An answer of a tracker that has nothing to say, but for `more`."""
    return {"leases": [], "holders": {}, "revoked": [], "bounds_s": None, "hub_bytes": 0, **more}


class ScriptedShare(ThreadingHTTPServer):
    """`tracker`: from a report to an answer, or to an HTTP status; `blobs`: by digest."""

    daemon_threads = True

    def __init__(
        self,
        address: str,
        port: int,
        tracker: Callable[[dict[str, Any]], dict[str, Any] | int],
        blobs: dict[str, bytes],
    ) -> None:
        self.tracker = tracker
        self.blobs = blobs
        self.reports: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.clients: list[str] = []
        self.keeps_connections = True
        super().__init__((address, port), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ScriptedShare

    def do_POST(self) -> None:
        share = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        share.headers.append(dict(self.headers))
        share.clients.append(self.client_address[0])
        said = share.tracker(body)
        share.reports.append(body)
        if isinstance(said, int):
            self._send(said, b"")
        else:
            self._send(200, json.dumps({"tracker": "scripted", **said}).encode())
        self.close_connection = not share.keeps_connections

    def do_GET(self) -> None:
        blob = self.server.blobs.get(self.path.removeprefix("/b/"))
        self._send(404 if blob is None else 200, blob or b"")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def scripted_share(
    tracker: Callable[[dict[str, Any]], dict[str, Any] | int],
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    blobs: dict[str, bytes] | None = None,
) -> Iterator[ScriptedShare]:
    share = ScriptedShare(address, port, tracker, blobs or {})
    thread = threading.Thread(target=share.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield share
    finally:
        share.shutdown()
        thread.join()
        share.server_close()
