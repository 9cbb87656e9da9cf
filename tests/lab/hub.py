"""A Hub-compatible server for the lab, as much of it as the real huggingface_hub client asks for.

`python -m tests.lab.hub --root DIR --host ADDR --port N [--log FILE]` serves every repository below DIR, with no Xet,
so that the client downloads over plain HTTP. A token is good when it begins with `hf_` and has no "bad" in it; one
with "noaccess" in it is good but may not read gated repositories. `/__lab__/faults` (see hub_faults), `/__lab__/stats`
and `/__lab__/health` are the lab's own.
"""

import argparse
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.lab.hub_faults import FaultError, Faults
from tests.lab.hub_files import RepoFile, Repositories
from tests.lab.hub_stats import Stats

_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|paths-info|refs)(?:/([^/]+)(?:/(.*))?)?)?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_CDN = re.compile(r"/__cdn__/([^/]+/[^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_SEND_BYTES = 1 << 20
_DATE = "2026-07-27T00:00:00.000Z"


class Hub(ThreadingHTTPServer):
    """The server with its repositories, faults, counts and log."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], root: Path, log: Path | None = None) -> None:
        self.repositories = Repositories(root)
        self.faults = Faults()
        self.stats = Stats()
        self._log = log.open("a", encoding="utf-8", buffering=1) if log else None
        super().__init__(address, Handler)

    def server_close(self) -> None:
        super().server_close()
        if self._log:
            self._log.close()

    def note(self, **entry: Any) -> None:
        """One line in the log."""
        if self._log:
            self._log.write(json.dumps({"time": round(time.time(), 3), **entry}) + "\n")


class HttpError(Exception):
    """An answer that says no, with the Hub's own code and message headers."""

    def __init__(self, status: int, message: str, code: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_after = retry_after


class Dropped(Exception):
    """The connection is to be closed without another byte."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Hub

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *_: Any) -> None:
        """The log is `Hub.note`."""

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    @property
    def _client(self) -> str:
        return str(self.client_address[0])

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._status, self._sent, self._file = 0, 0, None
        try:
            if path.startswith("/__lab__/"):
                self._serve_lab(path.removeprefix("/__lab__/"), body)
                return
            self._serve_hub(path, body)
        except HttpError as error:
            self._say_no(error)
        except Dropped:
            self._break(with_reset=True)
        finally:
            if not path.startswith("/__lab__/"):
                self._note()

    def _note(self) -> None:
        self.server.note(
            client=self._client,
            method=self.command,
            path=self.path,
            range=self.headers.get("Range"),
            token=bool(self.headers.get("Authorization")),
            status=self._status,
            bytes=self._sent,
        )

    def _serve_lab(self, what: str, body: bytes) -> None:
        try:
            match (self.command, what):
                case ("GET", "health"):
                    self._json({"status": "ok"})
                case ("GET", "stats"):
                    self._json(self.server.stats.document())
                case ("DELETE", "stats"):
                    self.server.stats.reset()
                    self._json({})
                case ("GET", "faults"):
                    self._json(self.server.faults.document())
                case ("POST", "faults"):
                    self.server.faults.replace(json.loads(body or b"{}"))
                    self._json(self.server.faults.document())
                case _:
                    raise HttpError(404, f"nothing at {self.command} {self.path}")
        except (FaultError, json.JSONDecodeError) as error:
            raise HttpError(400, str(error)) from error

    def _serve_hub(self, path: str, body: bytes) -> None:
        resolve = _RESOLVE.fullmatch(path) or _CDN.fullmatch(path)
        name = resolve[resolve.re.groups] if resolve else path
        self.server.stats.asked(self.command, self._client, name if resolve else None)
        self._apply_faults(name)
        if (renamed := self.server.faults.switch("renamed")) and renamed["from"] in path:
            self._head(307, {"Location": self.path.replace(renamed["from"], renamed["to"]), "Content-Length": "0"})
            return
        if path == "/api/whoami-v2":
            self._check_token(needs_token=True)
            self._json({"type": "user", "name": "lab", "auth": {"accessToken": {"role": "read"}}})
        elif cdn := _CDN.fullmatch(path):
            file = self._find_file(cdn[1], cdn[2])
            self._send_file(file, cdn[2], {**_naming(self._commit(cdn[1]), file), "ETag": '"cdn"'})
        elif resolve:
            self._resolve(resolve[1], resolve[2], resolve[3])
        elif api := _API.fullmatch(path):
            self._serve_api(api[1], api[2], api[3], api[4], body)
        else:
            raise HttpError(404, "Not Found")

    def _apply_faults(self, name: str) -> None:
        about = {"name": name, "client": self._client, "method": self.command}
        faults = self.server.faults
        if stall := faults.take("stall", **about):
            time.sleep(float(stall["seconds"]))
        if faults.take("drop", **about):
            raise Dropped
        if told := faults.take("status", **about):
            raise HttpError(int(told["code"]), "Asked to fail", retry_after=told.get("retry_after"))

    def _check_token(self, *, needs_token: bool = False) -> bool:
        """Whether there is a good token; a bad one is refused even for what is public."""
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        if token and (scheme.lower() != "bearer" or not token.startswith("hf_") or "bad" in token):
            raise HttpError(401, "Invalid credentials in Authorization header")
        if needs_token and not token:
            raise HttpError(401, "Invalid username or password.")
        return bool(token)

    def _check_repo(self, repo: str, revision: str | None) -> str:
        """The commit that a revision means; raises for whoever may not see it and for what is not there."""
        has_token = self._check_token()
        if not self.server.repositories.has(repo) or (self.server.faults.switch("require_token") and not has_token):
            raise HttpError(404 if has_token else 401, "Repository not found", "RepoNotFound")
        main = self._commit(repo)
        if revision in (None, "main", "refs/heads/main"):
            return main
        if revision in (main, self.server.repositories.commit(repo)):
            return str(revision)
        raise HttpError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def _commit(self, repo: str) -> str:
        return str(self.server.faults.switch("main") or self.server.repositories.commit(repo))

    def _check_access(self, repo: str) -> None:
        if not self.server.faults.switch("gated"):
            return
        has_token = self._check_token()
        if not has_token or "noaccess" in (self.headers.get("Authorization") or ""):
            raise HttpError(
                403 if has_token else 401,
                f"Access to model {repo} is restricted. You must have access to it and be authenticated to access it.",
                "GatedRepo",
            )

    def _serve_api(self, repo: str, kind: str | None, revision: str | None, below: str | None, body: bytes) -> None:
        commit = self._check_repo(repo, revision)
        match kind:
            case None | "revision":
                self._json(self._model_info(repo, commit))
            case "tree":
                self._json([_entry(name, file) for name, file in self._below(repo, below).items()])
            case "paths-info":
                wanted = _paths(body, self.headers.get("Content-Type") or "")
                files = self.server.repositories.files(repo)
                self._json([_entry(name, files[name]) for name in wanted if name in files])
            case _:
                branch = {"name": "main", "ref": "refs/heads/main", "targetCommit": commit}
                self._json({"branches": [branch], "converts": [], "tags": [], "pullRequests": []})

    def _below(self, repo: str, folder: str | None) -> dict[str, RepoFile]:
        files = self.server.repositories.files(repo)
        if not folder:
            return files
        found = {name: file for name, file in files.items() if name.startswith(f"{folder.rstrip('/')}/")}
        if not found:
            raise HttpError(404, f"{folder} does not exist", "EntryNotFound")
        return found

    def _model_info(self, repo: str, commit: str) -> dict[str, Any]:
        has_blobs = "blobs" in parse_qs(urlsplit(self.path).query)
        siblings: list[dict[str, Any]] = []
        for name, file in self.server.repositories.files(repo).items():
            sibling: dict[str, Any] = {"rfilename": name}
            if has_blobs:
                sibling |= {"size": file.size, "blobId": file.blob_id}
                if file.sha256:
                    sibling["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
            siblings.append(sibling)
        return {
            "_id": commit[:24],
            "id": repo,
            "modelId": repo,
            "author": repo.split("/")[0],
            "sha": commit,
            "lastModified": _DATE,
            "createdAt": _DATE,
            "private": bool(self.server.faults.switch("require_token")),
            "gated": "manual" if self.server.faults.switch("gated") else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": siblings,
        }

    def _find_file(self, repo: str, name: str) -> RepoFile:
        file = self.server.repositories.file(repo, name)
        if file is None:
            raise HttpError(404, "Entry not found", "EntryNotFound")
        return file

    def _resolve(self, repo: str, revision: str, name: str) -> None:
        commit = self._check_repo(repo, revision)
        self._check_access(repo)
        file = self._find_file(repo, name)
        headers = {**_naming(commit, file), "Accept-Ranges": "bytes"}
        if file.sha256 and self.server.faults.switch("redirect"):
            location = f"http://{self.headers.get('Host')}/__cdn__/{repo}/{name}"
            self._head(302, {**headers, "Location": location, "Content-Length": "0"})
            return
        self._send_file(file, name, headers)

    def _send_file(self, file: RepoFile, name: str, headers: dict[str, str]) -> None:
        first, end, is_part = self._range(file.size)
        headers = {**headers, "Content-Type": "application/octet-stream", "Content-Length": str(end - first)}
        if is_part:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{file.size}"
        self._head(206 if is_part else 200, headers)
        if self.command != "HEAD":
            self._send_body(file, name, first, end)

    def _range(self, size: int) -> tuple[int, int, bool]:
        match = _RANGE.fullmatch(self.headers.get("Range") or "")
        if match is None or (not match[1] and not match[2]):
            return 0, size, False
        if not match[1]:
            return max(0, size - int(match[2])), size, True
        first = int(match[1])
        end = min(size, int(match[2]) + 1) if match[2] else size
        if first >= size or end <= first:
            self._head(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            raise HttpError(416, "Range Not Satisfiable")
        return first, end, True

    def _send_body(self, file: RepoFile, name: str, first: int, end: int) -> None:
        about = {"name": name, "client": self._client, "method": self.command}
        cut = self.server.faults.take("cut", **about)
        slow = self.server.faults.take("slow", **about)
        corrupt = self.server.faults.take("corrupt", **about)
        last = min(end, first + int(cut["after_bytes"])) if cut else end
        wrong_at = file.size // 2 if corrupt else -1
        step = max(1, min(_SEND_BYTES, int(slow["bytes_per_s"]) // 10)) if slow else _SEND_BYTES
        with file.path.open("rb", buffering=0) as source:
            at = first
            while at < last:
                began = time.monotonic()
                if at == wrong_at:
                    source.seek(at)
                    count = self.connection.send(bytes([source.read(1)[0] ^ 0xFF]))
                else:
                    stop = min(last, at + step, wrong_at if at < wrong_at else last)
                    count = os.sendfile(self.connection.fileno(), source.fileno(), at, stop - at)
                if count == 0:
                    raise Dropped
                at += count
                self._sent += count
                self.server.stats.sent(count, self._client, name)
                if slow:
                    time.sleep(max(0.0, count / float(slow["bytes_per_s"]) - (time.monotonic() - began)))
        if cut:
            self._break(with_reset=bool(cut.get("reset")))

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self._status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _json(self, document: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(document).encode()
        common = {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(data))}
        self._head(status, {**common, **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(data)

    def _say_no(self, error: HttpError) -> None:
        if self._status:
            return  # the head has gone out already
        headers = {"X-Error-Message": error.message}
        if error.code:
            headers["X-Error-Code"] = error.code
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
            headers["RateLimit"] = f'"resolvers";r=0;t={error.retry_after}'
        self._json({"error": error.message}, error.status, headers)

    def _break(self, *, with_reset: bool) -> None:
        """Close early: politely, or with a reset as a broken path would."""
        self.close_connection = True
        if with_reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)


def _naming(commit: str, file: RepoFile) -> dict[str, str]:
    """The headers that say which file of which commit this is."""
    headers = {"X-Repo-Commit": commit, "ETag": f'"{file.etag}"'}
    if file.sha256:
        headers |= {"X-Linked-Size": str(file.size), "X-Linked-ETag": f'"{file.sha256}"'}
    return headers


def _entry(name: str, file: RepoFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": file.blob_id, "size": file.size, "path": name}
    if file.sha256:
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    return entry


def _paths(body: bytes, content_type: str) -> list[str]:
    if "json" in content_type:
        return [str(path) for path in json.loads(body)["paths"]]
    return parse_qs(body.decode()).get("paths", [])


def start(
    root: Path, host: str = "127.0.0.1", port: int = 0, log: Path | None = None
) -> tuple[Hub, Callable[[], None]]:
    """Serve in a thread of this process; returns the server and what stops it."""
    hub = Hub((host, port), root, log)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()

    def stop() -> None:
        hub.shutdown()
        hub.server_close()
        thread.join()

    return hub, stop


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.hub", description="A Hub-compatible server.")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path)
    args = parser.parse_args()
    hub = Hub((args.host, args.port), args.root, args.log)
    hub.repositories.warm()
    print(f"hub of {args.root} on http://{args.host}:{hub.server_address[1]}", flush=True)
    hub.serve_forever(poll_interval=0.2)


if __name__ == "__main__":
    main()
