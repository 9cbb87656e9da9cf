"""Whether this node's part of the engine answers: its container, and its HTTP side as seen from this node."""

import http.client
import json
import os
import time
from typing import Any

from k3deploy.remote.api_key import read_key
from k3deploy.remote.container_state import container_state
from k3deploy.remote.dockerd import SOCKET_PATH, Dockerd
from k3deploy.remote.own_records import record

# SGLang's /health sends one token through the model and waits up to 20 s for it (SGLANG_HEALTH_CHECK_TIMEOUT).
HEALTH_TIMEOUT_S = 25.0
ANSWER_TIMEOUT_S = 10.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: name (container), folder (this run's), optionally key_file. Nothing is asked of a container that is down.

    Host, port and node rank are read from the container's own command, so that what runs is asked, not what was meant.
    """
    found = container_state(Dockerd(args.get("socket") or SOCKET_PATH), args["name"])
    container = found["container"]
    base = {
        **found,
        "ready": record(os.path.join(args["folder"], "ready.json")),
        "chat": record(os.path.join(args["folder"], "chat.json")),
    }
    if container is None or container["status"] != "running":
        return {**base, "health": None, "models": None, "node_rank": None}
    options = engine_options(container["cmd"])
    host = _ANY.get(options.get("--host", "127.0.0.1"), options.get("--host", "127.0.0.1"))
    port = int(options.get("--port", "30000"))
    node_rank = int(options.get("--node-rank", "0"))
    return {
        **base,
        "node_rank": node_rank,
        "health": _get(host, port, "/health", HEALTH_TIMEOUT_S),
        # Only rank 0 has an API; the others have a stand-in health server that knows no other path.
        "models": _get(host, port, "/v1/models", ANSWER_TIMEOUT_S, args.get("key_file")) if node_rank == 0 else None,
    }


def engine_options(cmd: list[str]) -> dict[str, str]:
    """`--name value` and `--name=value` of a command line; enough to find host, port and rank."""
    found: dict[str, str] = {}
    for at, word in enumerate(cmd):
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif at + 1 < len(cmd):
            found[name] = cmd[at + 1]
    return found


def _get(host: str, port: int, path: str, timeout_s: float, key_file: "str | None" = None) -> dict[str, Any]:
    """{"status", "body", "seconds"}; status None and the reason in "error" when nothing answered in time."""
    began = time.monotonic()
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    headers = {"Authorization": f"Bearer {read_key(key_file)}"} if key_file else {}
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        text = response.read(65536).decode("utf-8", "replace")
        found: dict[str, Any] = {"status": response.status, "body": _json(text), "error": ""}
    except (OSError, http.client.HTTPException) as error:
        found = {"status": None, "body": None, "error": f"{type(error).__name__}: {error}"}
    finally:
        connection.close()
    return {**found, "seconds": round(time.monotonic() - began, 3)}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
