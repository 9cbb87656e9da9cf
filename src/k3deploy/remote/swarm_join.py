"""Take part in a run's swarm: learn who the others are, and share what this node has, as a detached job."""

from typing import Any

from k3deploy.remote import job_start, swarm_peers
from k3deploy.remote.protocol import Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: folder and peers (see swarm_peers), job (id, dir, entry, args as job_start takes them);
    secrets: swarm_token. Returns what `job_start` does.
    """
    secrets = args["secrets"]
    swarm_peers.main({"folder": args["folder"], "peers": args["peers"], "secrets": secrets}, say)
    return job_start.main({**args["job"], "secrets": secrets}, say)
