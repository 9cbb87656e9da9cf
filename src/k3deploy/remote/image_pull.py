"""Pull an image by digest through the Docker daemon. Runs as a detached job: a pull ends when its client goes away.

Space is looked at before, as a disk that fills during a pull shows up as a DNS or connection error of some registry
(seen with Docker 26.1: after a failure at a mirror only the last registry's words remain).
"""

import os
from typing import Any

from k3deploy.remote.dockerd import SOCKET_PATH, Dockerd, DockerRefused, NoDaemon
from k3deploy.remote.journal import Journal
from k3deploy.remote.protocol import Refusal, Say
from k3deploy.remote.sections.image import image

# A disk with less than this left after a failed pull is the reason for the failure.
_FULL_BELOW_BYTES = 256_000_000


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: reference (repository@digest), image_bytes (room it needs), silence_s, run_dir (of the journal that
    notes the image as this run's), optionally socket.

    Returns {"id", "size_bytes", "was_there"}. Raises Refusal.
    """
    reference = args["reference"]
    daemon = Dockerd(args.get("socket") or SOCKET_PATH)
    try:
        there = image(daemon, reference)
        if there is not None:
            return {"id": there["id"], "size_bytes": there["size_bytes"], "was_there": True}
        root = daemon.get("/info")["DockerRootDir"]
        _check_room(root, args["image_bytes"])
        if args.get("run_dir"):
            Journal(args["run_dir"]).add({"kind": "image", "path": reference})
        _pull(daemon, reference, args["silence_s"], root, say)
        pulled = image(daemon, reference)
    except NoDaemon as reason:
        raise Refusal(
            f"the pull of {reference} broke off",
            why=str(reason),
            fix="run the same command again: layers that were finished are kept",
            image=reference,
        ) from reason
    if pulled is None:
        raise Refusal(
            f"the pull of {reference} ended, but the image is not there",
            why="something else removed it, or the daemon keeps it under another name",
            fix="look at `sudo docker images --digests` on the node, then run the same command again",
            image=reference,
        )
    return {"id": pulled["id"], "size_bytes": pulled["size_bytes"], "was_there": False}


class Layers:
    """Bytes that came so far, added up over the layers of a pull, from the daemon's messages."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._come: dict[str, int] = {}
        self._finished: set[str] = set()
        self._seen: set[str] = set()

    def note(self, message: dict[str, Any]) -> None:
        layer, status = message.get("id"), message.get("status", "")
        if layer is None or status.startswith("Pulling from"):
            return
        self._seen.add(layer)
        detail = message.get("progressDetail") or {}
        if status == "Downloading" and detail.get("total"):
            self._sizes[layer], self._come[layer] = detail["total"], detail["current"]
        elif status in ("Download complete", "Extracting", "Verifying Checksum"):
            self._come[layer] = self._sizes.get(layer, 0)
        elif status in ("Pull complete", "Already exists"):
            self._come[layer] = self._sizes.get(layer, 0)
            self._finished.add(layer)

    def progress(self) -> dict[str, Any]:
        """`total` grows while the daemon is still learning of layers."""
        return {
            "message": f"pulling the image: {len(self._finished)} of {len(self._seen)} layers unpacked",
            "done": sum(self._come.values()),
            "total": sum(self._sizes.values()),
        }


def _pull(daemon: Dockerd, reference: str, silence_s: float, root: str, say: Say) -> None:
    repository, _, digest = reference.partition("@")
    layers = Layers()
    try:
        for message in daemon.stream("/images/create", silence_s=silence_s, fromImage=repository, tag=digest):
            if "error" in message:
                raise _failed(reference, str(message["error"]), root)
            layers.note(message)
            say(layers.progress())
    except DockerRefused as refused:
        raise _failed(reference, refused.message, root) from refused


def _failed(reference: str, words: str, root: str) -> Refusal:
    free = _free_bytes(root)
    if free < _FULL_BELOW_BYTES:
        return Refusal(
            f"the disk of {root} ran full during the pull of {reference}",
            why=f"{words}",
            fix="free space there, or rent nodes with a bigger disk",
            image=reference,
            found=f"{free} bytes free",
        )
    return Refusal(
        f"{reference} could not be pulled",
        why=words,
        fix="check that the node reaches the registry, then run the same command again: finished layers are kept",
        image=reference,
    )


def _check_room(root: str, needed: int) -> None:
    free = _free_bytes(root)
    if free < needed:
        raise Refusal(
            "no room for the image",
            why=f"Docker unpacks it below {root}",
            fix="free space there, or set `storage.image_bytes` in the profile if the image is smaller",
            found=f"{free} bytes free",
            wanted=f"{needed} bytes",
        )


def _free_bytes(path: str) -> int:
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize
