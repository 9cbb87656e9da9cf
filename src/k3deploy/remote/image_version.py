"""Ask an image which version of a Python package is inside, by running its python3 once: no network, no GPU."""

import json
import struct
from typing import Any

from k3deploy.remote.dockerd import SOCKET_PATH, Dockerd, DockerRefused, NoDaemon
from k3deploy.remote.protocol import Refusal, Say

_RUN_TIMEOUT_S = 180.0
_CODE = """\
import importlib.metadata, json, sys
try:
    version = importlib.metadata.version(sys.argv[1])
except importlib.metadata.PackageNotFoundError:
    version = None
print(json.dumps({"version": version}))
"""
_CONFLICT = 409
_NOT_FOUND = 404


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: reference, package, name (of the container, ours by the run's id in it), optionally socket.

    Returns {"version"}: None when the package is not in the image. Raises Refusal when the image can't say.
    """
    daemon = Dockerd(args.get("socket") or SOCKET_PATH)
    try:
        return {"version": _ask(daemon, args)}
    except (NoDaemon, DockerRefused) as error:
        raise _refusal(args["reference"], str(error)) from error


def _ask(daemon: Dockerd, args: dict[str, Any]) -> str | None:
    container = _create(daemon, args)
    try:
        daemon.post(f"/containers/{container}/start", timeout_s=_RUN_TIMEOUT_S)
        ended = daemon.post(f"/containers/{container}/wait", timeout_s=_RUN_TIMEOUT_S)
        said = daemon.raw(f"/containers/{container}/logs", stdout="1", stderr="1")
    finally:
        _remove(daemon, container)
    out, errors = streams(said)
    if ended["StatusCode"] != 0:
        raise _refusal(args["reference"], f"python3 ended with {ended['StatusCode']}: {(errors or out)[-400:]}")
    try:
        version: str | None = json.loads(out.splitlines()[-1])["version"]
    except (ValueError, KeyError, IndexError) as error:
        raise _refusal(args["reference"], f"it printed {out[-400:]!r}") from error
    return version


def _create(daemon: Dockerd, args: dict[str, Any]) -> str:
    name = args["name"]
    body = {
        "Image": args["reference"],
        "Entrypoint": ["python3", "-c", _CODE, args["package"]],
        "Cmd": [],
        # Where nvidia is the default runtime, this keeps it from asking for a driver: nodes may have no GPU yet.
        "Env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "HostConfig": {"NetworkMode": "none"},
    }
    try:
        created = daemon.post("/containers/create", body, timeout_s=_RUN_TIMEOUT_S, name=name)
    except DockerRefused as refused:
        if refused.status != _CONFLICT:
            raise
        _remove(daemon, name)  # of an attempt that was cut off
        created = daemon.post("/containers/create", body, timeout_s=_RUN_TIMEOUT_S, name=name)
    container: str = created["Id"]
    return container


def _remove(daemon: Dockerd, container: str) -> None:
    try:
        daemon.delete(f"/containers/{container}", force="1", v="1", timeout_s=60.0)
    except DockerRefused as refused:
        if refused.status != _NOT_FOUND:
            raise


def streams(data: bytes) -> tuple[str, str]:
    """Standard output and standard error out of Docker's log frames (stream, 3 zero bytes, length, payload)."""
    parts = {1: b"", 2: b""}
    while len(data) >= 8:
        stream, length = struct.unpack(">BxxxI", data[:8])
        parts[stream] = parts.get(stream, b"") + data[8 : 8 + length]
        data = data[8 + length :]
    return parts[1].decode("utf-8", "replace"), parts[2].decode("utf-8", "replace")


def _refusal(reference: str, why: str) -> Refusal:
    return Refusal(
        f"the engine's version cannot be read out of {reference}",
        why=why,
        fix="check that the image is one of the engine: `sudo docker run --rm --entrypoint python3 IMAGE --version`",
        image=reference,
    )
