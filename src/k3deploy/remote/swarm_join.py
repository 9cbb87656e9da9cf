"""Take part in a run's swarm: learn who the others are, and share what this node has, as a detached job."""

from typing import Any

from k3deploy.remote.job_start import main as start_job
from k3deploy.remote.protocol import Say
from k3deploy.remote.swarm_peers import main as keep_peers


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: folder and peers (see swarm_peers), job (id, dir, entry, args as job_start takes them);
    secrets: swarm_token. Returns what `job_start` does.
    """
    secrets = args["secrets"]
    keep_peers({"folder": args["folder"], "peers": args["peers"], "secrets": secrets}, say)
    return start_job({**args["job"], "secrets": secrets}, say)
