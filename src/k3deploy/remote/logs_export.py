"""Hand out what a run printed on this node: its container's log and its jobs' logs, packed, capped, without secrets."""

import base64
import gzip
import os
from collections.abc import Iterable
from typing import Any

from k3deploy.remote.container_log import LogDecoder
from k3deploy.remote.dockerd import SOCKET_PATH, Dockerd, DockerRefused, NoDaemon
from k3deploy.remote.protocol import Say
from k3deploy.remote.redact import redact

# A chunk of the packed text, as base64 on one JSON line.
_CHUNK_BYTES = 192 * 1024
_SILENCE_S = 60.0


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: container (id, or null), jobs {name: folder}, head_bytes and tail_bytes (of each text, unpacked).

    Says {"name", "chunk"}: gzip data in base64, pieces of one name in order. Returns {"files": {name: {"lines",
    "left_out_bytes"}}, "missing": {name: why}}.
    """
    keep = (int(args["head_bytes"]), int(args["tail_bytes"]))
    files: dict[str, Any] = {}
    missing: dict[str, str] = {}
    if args.get("container"):
        daemon = Dockerd(args.get("socket") or SOCKET_PATH)
        try:
            files["engine"] = _send("engine", _container_lines(daemon, args["container"]), keep, say)
        except (NoDaemon, DockerRefused) as error:
            missing["engine"] = str(error)
    for name, folder in sorted(dict(args.get("jobs") or {}).items()):
        files[f"job-{name}"] = _send(f"job-{name}", _job_lines(folder), keep, say)
    return {"files": files, "missing": missing}


def _container_lines(daemon: Dockerd, container: str) -> Iterable[str]:
    is_framed = not daemon.get(f"/containers/{container}/json")["Config"]["Tty"]
    decoder = LogDecoder(is_framed=is_framed)
    path = f"/containers/{container}/logs"
    for chunk in daemon.chunks(path, silence_s=_SILENCE_S, stdout="1", stderr="1", timestamps="1", tail="all"):
        for line in decoder.feed(chunk):
            yield f"{line.at:.3f} {line.text}"
    for line in decoder.end():
        yield f"{line.at:.3f} {line.text}"


def _job_lines(folder: str) -> Iterable[str]:
    """What the job printed and what it said at last."""
    for name in ("log", "progress.json", "result.json"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                yield f"== {name}"
                for line in file:
                    yield redact(line.rstrip("\n"))
        except FileNotFoundError:
            continue


def _send(name: str, lines: Iterable[str], keep: "tuple[int, int]", say: Say) -> dict[str, Any]:
    kept = Kept(*keep)
    for line in lines:
        kept.add(line)
    packed = gzip.compress(kept.text().encode(), mtime=0)
    for at in range(0, len(packed), _CHUNK_BYTES):
        say({"name": name, "chunk": base64.b64encode(packed[at : at + _CHUNK_BYTES]).decode()})
    return {"lines": kept.lines, "left_out_bytes": kept.left_out_bytes}


class Kept:
    """The first and the last bytes of a long text, by whole lines, in bounded memory."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self.lines = 0
        self.left_out_bytes = 0
        self._head: list[str] = []
        self._tail: list[str] = []
        self._head_room = head_bytes
        self._tail_limit = tail_bytes
        self._tail_size = 0
        self._dropped = 0

    def add(self, line: str) -> None:
        self.lines += 1
        size = len(line.encode()) + 1
        if not self._tail and size <= self._head_room:
            self._head.append(line)
            self._head_room -= size
            return
        self._head_room = 0
        self._tail.append(line)
        self._tail_size += size
        while self._tail_size > self._tail_limit and self._dropped < len(self._tail) - 1:
            gone = len(self._tail[self._dropped].encode()) + 1
            self._tail[self._dropped] = ""
            self._dropped += 1
            self._tail_size -= gone
            self.left_out_bytes += gone
        if self._dropped > 4096:  # forget the emptied places now and then, not one by one
            del self._tail[: self._dropped]
            self._dropped = 0

    def text(self) -> str:
        between = [f"== {self.left_out_bytes} bytes left out here"] if self.left_out_bytes else []
        return "\n".join([*self._head, *between, *self._tail[self._dropped :], ""])
