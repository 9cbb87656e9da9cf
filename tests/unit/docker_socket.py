"""A Docker daemon's socket whose answers a test writes: real HTTP over a real Unix socket, asked by the real client."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

# A body, or (status, body); a list is sent as one JSON message per line, chunk by chunk; bytes go out as they are.
Answer = Any
Route = Answer | Callable[[dict[str, Any]], Answer]

INFO = {
    "ServerVersion": "27.5.1",
    "DockerRootDir": "/",
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "extfs"]],
    "Runtimes": {"runc": {}, "nvidia": {}},
    "SecurityOptions": ["name=seccomp,profile=builtin"],
    "LiveRestoreEnabled": False,
    "Architecture": "x86_64",
    "Images": 1,
}


class DockerSocket:
    """`routes[("GET", "/info")] = {...}`; a callable gets {"query", "body"}. What was asked is in `requests`."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.routes: dict[tuple[str, str], Route] = {("GET", "/info"): INFO, ("GET", "/containers/json"): []}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []

    def asked(self, method: str, path: str) -> list[dict[str, str]]:
        """The queries of every such request."""
        return [query for seen, where, query, _ in self.requests if (seen, where) == (method, path)]


@contextmanager
def docker_socket(folder: Path) -> Iterator[DockerSocket]:
    daemon = DockerSocket(folder / "docker.sock")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def do_DELETE(self) -> None:
            self._answer("DELETE")

        def address_string(self) -> str:
            return "client"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so  # noqa: A002 - the base class names it so
            pass

        def _answer(self, method: str) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length)) if length else None
            daemon.requests.append((method, url.path, query, body))
            route = daemon.routes.get((method, url.path), (404, {"message": f"no such thing: {url.path}"}))
            answer = route({"query": query, "body": body}) if callable(route) else route
            status, content = answer if isinstance(answer, tuple) else (200, answer)
            self.send_response(status)
            if isinstance(content, list) and method == "POST":
                self._stream(content)
            else:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if data:  # a client need not stay for the end of an answer without a body
                    self.wfile.write(data)

        def _stream(self, messages: list[Any]) -> None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for message in messages:
                data = json.dumps(message).encode() + b"\r\n"
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    with Server(daemon.path, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield daemon
        finally:
            server.shutdown()
            thread.join()
