"""The small JSON files that a run keeps in its folder on a node, and what other runs have noted there."""

import json
import os
from typing import Any


def record(path: str) -> dict[str, Any] | None:
    """One of our files; None when it is absent or was cut short (a write is atomic, a full disk is not)."""
    try:
        with open(path, encoding="utf-8") as file:
            body = json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def other_claims(base: str, folder: str, container: str) -> list[str]:
    """Run ids, other than that of `folder`, that have noted a launch under this container name."""
    try:
        runs = sorted(os.listdir(base))
    except (FileNotFoundError, NotADirectoryError):
        return []
    claims = []
    for run in runs:
        path = os.path.join(base, run)
        if path == folder:
            continue
        noted = record(os.path.join(path, "launch.json"))
        if noted is not None and noted.get("container") == container:
            claims.append(run)
    return claims
