"""A Docker daemon with one container, on a socket: how it is, and a log that may be held open."""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

STDOUT, STDERR = 1, 2


def frame(text: str | bytes, stream: int = STDERR) -> bytes:
    """One piece of a container's log as the daemon frames it."""
    data = text.encode() if isinstance(text, str) else text
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def inspected(
    identifier: str = "c" * 64, *, status: str = "running", exit_code: int = 0, **config: Any
) -> dict[str, Any]:
    """The answer of GET /containers/NAME/json."""
    return {
        "Id": identifier,
        "Name": "/sgl",
        "Image": "sha256:" + "1" * 64,
        "Created": "2026-11-30T12:00:00.5Z",
        "Config": {"Image": "img", "Cmd": ["sglang", "serve"], "Env": ["A=1"], "Tty": False, **config},
        "State": {
            "Status": status,
            "ExitCode": exit_code,
            "OOMKilled": False,
            "Error": "",
            "StartedAt": "2026-11-30T12:00:01.123456789Z",
            "FinishedAt": "0001-01-01T00:00:00Z" if status == "running" else "2026-11-30T12:00:09Z",
        },
    }


class ContainerDaemon:
    """`answers[path]`: a status and a body (JSON, or bytes as they are), or a list of them given in turn.

    `asked` keeps (method, path, query). With `hold`, a body of bytes stays open until it is set; `later` then follows.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.answers: dict[str, tuple[int, Any] | list[tuple[int, Any]]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.hold: threading.Event | None = None
        self.later: bytes = b""

    def answer(self, path: str) -> tuple[int, Any]:
        found = self.answers.get(path, (404, {"message": f"No such thing: {path}"}))
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    daemon: ContainerDaemon


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Nothing: the test asks for what was asked."""

    def do_GET(self) -> None:
        daemon = self.server.daemon
        url = urlsplit(self.path)
        daemon.asked.append((self.command, url.path, {k: v[0] for k, v in parse_qs(url.query).items()}))
        status, body = daemon.answer(url.path)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())
        self.wfile.flush()
        if isinstance(body, bytes) and daemon.hold is not None:
            daemon.hold.wait(20)
            self.wfile.write(daemon.later)


@contextmanager
def container_daemon(folder: Path) -> Iterator[ContainerDaemon]:
    """Serve on `folder`/docker.sock until the block is left. Socket paths are short: 107 bytes at most."""
    daemon = ContainerDaemon(folder / "docker.sock")
    assert len(daemon.path) < 100, "use a shorter folder"
    server = _Server(daemon.path, _Handler)
    server.daemon = daemon
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield daemon
    finally:
        if daemon.hold is not None:
            daemon.hold.set()
        server.shutdown()
        server.server_close()


@contextmanager
def listening() -> Iterator[int]:
    """A TCP port of this process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
