"""What runs under the engine's container name, what we noted about it, and who holds the engine's ports. Reads only."""

import os
import time
from typing import Any

from k3deploy.remote.container_state import container_state
from k3deploy.remote.dockerd import SOCKET_PATH, Dockerd
from k3deploy.remote.listeners import listeners
from k3deploy.remote.own_records import other_claims, record


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: name (container), folder (of this run), ports. `now` is the node's clock in epoch seconds."""
    folder = args["folder"]
    return {
        **container_state(Dockerd(args.get("socket") or SOCKET_PATH), args["name"]),
        "now": time.time(),
        "launch": record(os.path.join(folder, "launch.json")),
        "recorded": record(os.path.join(folder, "container.json")),
        "other_claims": other_claims(os.path.dirname(folder), folder, args["name"]),
        "listeners": listeners(list(args["ports"])),
    }
