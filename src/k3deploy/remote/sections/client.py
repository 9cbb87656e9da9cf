"""Whether the Hub client is on this node, whole, from the lock that is asked for. Reads only."""

from typing import Any

from k3deploy.remote.client_stamp import read_stamp


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: folder, lock. Returns {"is_whole", "why"}."""
    return read_stamp(args["folder"], args["lock"])
