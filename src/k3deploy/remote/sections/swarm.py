"""Whether this node was given the token of the run's swarm before. The token itself stays where it is. Reads only."""

import os
from typing import Any


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: folder (see swarm_peers). Returns {"has_token"}."""
    return {"has_token": os.path.exists(os.path.join(args["folder"], "token"))}
