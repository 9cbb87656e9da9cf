"""Nodes of a run on addresses of the loopback, each with a cache and a share that serves it."""

import hashlib
import http.client
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k3deploy.remote.hub_cache import Found, Repository, Wanted, manifest_digest, wanted_files
from k3deploy.remote.share import Share, listen
from k3deploy.remote.share_http import HttpServer
from k3deploy.remote.share_request import Patience
from k3deploy.remote.stamps import Stamps

RUN = "h100x32-20260728-074500-0a1b"
TOKEN = "0123456789abcdef-of-the-run"
COMMIT = "9f62e4e9fffbd0a83ddd60e1c209d828994b3569"
CONTENT = {f"model-{number:05}.safetensors": bytes([number]) * (100_000 + number) for number in range(1, 5)}


def manifest_of(content: Mapping[str, bytes]) -> dict[str, Any]:
    """The shards, then a small file that the Hub gives no sha256 of."""
    large = [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "blob_id": "0" * 40}
        for path, data in content.items()
    ]
    return {
        "repo": "moonshotai/Kimi-K3",
        "commit": COMMIT,
        "files": [*large, {"path": "config.json", "size": 2, "sha256": None, "blob_id": "1" * 40}],
    }


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ShareNode:
    """`peers_file`: the same for all nodes of a test."""

    name: str
    address: str
    folder: Path
    peers_file: Path
    ports: list[int]
    content: Mapping[str, bytes] = field(default_factory=lambda: CONTENT)
    slots: int = 2

    def __post_init__(self) -> None:
        self.manifest = manifest_of(self.content)
        (self.folder / "fetch").mkdir(parents=True)
        self.repository = Repository(str(self.folder / "hf"), self.manifest["repo"], self.manifest["commit"])
        Path(self.repository.blobs).mkdir(parents=True)
        Path(self.repository.snapshot).mkdir(parents=True)

    @property
    def files(self) -> list[Wanted]:
        return wanted_files(self.manifest)

    @property
    def digest(self) -> str:
        return manifest_digest(self.manifest)

    def args(self, **more: Any) -> dict[str, Any]:
        return {
            "run": RUN,
            "node": self.name,
            "host": self.address,
            "ports": self.ports,
            "peers_file": str(self.peers_file),
            "hf_home": str(self.folder / "hf"),
            "manifest": self.manifest,
            "fetch_folder": str(self.folder / "fetch"),
            "linger_s": 900.0,
            "slots": self.slots,
            "secrets": {"swarm_token": TOKEN},
            **more,
        }

    def put(self, *indexes: int, digest: str | None = None) -> None:
        """Have these files, and their stamps: of the right bytes unless `digest` says otherwise."""
        stamps = Stamps(self.repository)
        for index in indexes:
            file = self.files[index]
            self.put_unproved(index)
            found = self.repository.look_at(file)
            assert isinstance(found, Found)
            stamps.put(file, found, digest or file.digest)
        stamps.save()

    def put_unproved(self, index: int) -> None:
        file = self.files[index]
        blob, link = Path(self.repository.blob(file.digest)), Path(self.repository.link(file.path))
        blob.write_bytes(self.content.get(file.path, b"{}"))
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(blob, link.parent))

    def start(self) -> "Running":
        share = Share(self.args())
        return Running(
            self, share, HttpServer(listen(self.address, self.ports), share, Patience(idle_s=5.0, answer_s=1.0))
        )

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        source: str | None = None,
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """From `source`, an address; from the node itself without one."""
        connection = http.client.HTTPConnection(self.address, self.ports[0], 10.0, (source or self.address, 0))
        try:
            known = {} if token is None else {"Authorization": "Bearer " + token}
            connection.request(method, path, body, {**known, **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def report(self, node: str, source: str, **words: Any) -> Reply:
        body = {"run": RUN, "node": node, "manifest": self.digest, "room": 1, **words}
        return self.ask("POST", "/v1/report", json.dumps(body).encode(), source=source)


@dataclass
class Running:
    node: ShareNode
    share: Share
    server: HttpServer


def write_peers(path: Path, nodes: Mapping[str, str]) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"run": RUN, "nodes": nodes}))
    draft.replace(path)
