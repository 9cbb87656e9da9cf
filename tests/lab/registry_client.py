"""The few calls of the registry HTTP API (v2) that a push needs, with no Docker daemon."""

import hashlib
import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"


class RegistryError(Exception):
    """The registry answered something else than what the API promises."""


class Registry:
    """One registry, by the URL of its root."""

    def __init__(self, url: str, timeout_s: float = 60) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or parts.hostname is None:
            raise RegistryError(f"only plain http registries are known here, got {url!r}")
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout_s)

    def has_blob(self, repository: str, digest: str) -> bool:
        """Whether a blob is there already."""
        return self._call("HEAD", f"/v2/{repository}/blobs/{digest}").status == 200

    def push_blob(self, repository: str, digest: str, content: bytes | Path) -> None:
        """Upload a blob in one piece, unless it is there."""
        if self.has_blob(repository, digest):
            return
        began = self._call("POST", f"/v2/{repository}/blobs/uploads/")
        location = began.headers.get("Location")
        if began.status != 202 or location is None:
            raise RegistryError(f"upload of {digest} to {repository} did not begin: HTTP {began.status}")
        parts = urlsplit(location)
        path = f"{parts.path}?{parts.query}&digest={digest}" if parts.query else f"{parts.path}?digest={digest}"
        if isinstance(content, Path):
            with content.open("rb") as file:
                done = self._call("PUT", path, file, {"Content-Length": str(content.stat().st_size)})
        else:
            done = self._call("PUT", path, content)
        if done.status != 201:
            raise RegistryError(f"upload of {digest} to {repository} failed: HTTP {done.status}")

    def push_manifest(self, repository: str, tag: str, manifest: dict[str, Any]) -> str:
        """Tag a manifest; returns its digest."""
        data = json.dumps(manifest, indent=1).encode()
        done = self._call("PUT", f"/v2/{repository}/manifests/{tag}", data, {"Content-Type": MANIFEST})
        digest = sha256(data)
        if done.status != 201 or done.headers.get("Docker-Content-Digest", digest) != digest:
            raise RegistryError(f"manifest {repository}:{tag} was refused: HTTP {done.status}")
        return digest

    def _call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> "_Answer":
        self._connection.request(method, path, body, {"Content-Type": "application/octet-stream", **(headers or {})})
        response = self._connection.getresponse()
        response.read()
        return _Answer(response.status, dict(response.getheaders()))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class _Answer:
    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers


def sha256(content: bytes | Path) -> str:
    """The digest of bytes or of a file, as registries write it."""
    if isinstance(content, bytes):
        return f"sha256:{hashlib.sha256(content).hexdigest()}"
    with content.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
