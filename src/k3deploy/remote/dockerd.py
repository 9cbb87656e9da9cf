"""The Docker daemon of this node, asked over its own socket: JSON answers instead of a command line's tables.

Docker Engine API, unversioned paths (the daemon's newest), checked on Docker 20.10 to 26.1.
"""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

SOCKET_PATH = "/var/run/docker.sock"
ANSWER_TIMEOUT_S = 20.0
HTTP_ERROR = 400
# `driver-type` in DriverStatus of a daemon that keeps its images in containerd (default of a fresh Docker 29).
CONTAINERD_STORE = "io.containerd.snapshotter.v1"


class NoDaemon(Exception):
    """There is no daemon to ask, or it does not answer."""


class DockerRefused(Exception):
    """The daemon answered with an error. `status` is the HTTP status; the text is the daemon's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("docker", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Dockerd:
    """One call, one connection: nothing to keep alive, nothing to leak."""

    def __init__(self, socket_path: str = SOCKET_PATH) -> None:
        self.socket_path = socket_path

    @property
    def has_socket(self) -> bool:
        return os.path.exists(self.socket_path)

    def get(self, path: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **query: str) -> Any:
        return self._json("GET", path, query, None, timeout_s)

    def post(self, path: str, body: dict[str, Any] | None = None, *, timeout_s: float, **query: str) -> Any:
        return self._json("POST", path, query, body, timeout_s)

    def delete(self, path: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **query: str) -> Any:
        return self._json("DELETE", path, query, None, timeout_s)

    def raw(self, path: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **query: str) -> bytes:
        """The body as it is: container logs."""
        connection, response = self._open("GET", path, query, None, timeout_s)
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoDaemon(f"the Docker daemon stopped answering: {error}") from error
        finally:
            connection.close()

    def stream(self, path: str, *, silence_s: float, **query: str) -> Iterator[dict[str, Any]]:
        """POST and yield the JSON messages of the answer as they come. Closing the generator ends the request,
        and with it what the daemon does for it. A silence longer than `silence_s` raises NoDaemon."""
        connection, response = self._open("POST", path, query, None, silence_s)
        try:
            for line in response:
                if line.strip():
                    yield json.loads(line)
        except (OSError, http.client.HTTPException) as error:
            raise NoDaemon(f"the Docker daemon stopped answering: {error}") from error
        finally:
            connection.close()

    def chunks(self, path: str, *, silence_s: float, **query: str) -> Iterator[bytes]:
        """GET and yield the body as it comes: a log that is followed. Closing the generator ends the request.
        A silence longer than `silence_s` raises NoDaemon."""
        connection, response = self._open("GET", path, query, None, silence_s)
        try:
            while data := response.read1(65536):
                yield data
        except (OSError, http.client.HTTPException) as error:
            raise NoDaemon(f"the Docker daemon stopped answering: {error}") from error
        finally:
            connection.close()

    def _json(
        self, method: str, path: str, query: dict[str, str], body: dict[str, Any] | None, timeout_s: float
    ) -> Any:
        connection, response = self._open(method, path, query, body, timeout_s)
        try:
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoDaemon(f"the Docker daemon stopped answering: {error}") from error
        finally:
            connection.close()
        return json.loads(data) if data.strip() else None

    def _open(
        self, method: str, path: str, query: dict[str, str], body: dict[str, Any] | None, timeout_s: float
    ) -> "tuple[http.client.HTTPConnection, http.client.HTTPResponse]":
        target = path + ("?" + urlencode(query) if query else "")
        connection = _SocketConnection(self.socket_path, timeout_s)
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if data is not None else {}
        try:
            connection.request(method, target, body=data, headers=headers)
            response = connection.getresponse()
            refusal = response.read() if response.status >= HTTP_ERROR else None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoDaemon(f"{self.socket_path}: {error}") from error
        if refusal is not None:
            connection.close()
            raise DockerRefused(response.status, _message(refusal))
        return connection, response


def image_path(reference: str) -> str:
    """API path of an image by `repo:tag`, `repo@digest` or id. Slashes of the name stay: the daemon wants them so."""
    return f"/images/{quote(reference, safe='/:@')}/json"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()
