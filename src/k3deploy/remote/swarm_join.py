"""Take part in a run's swarm: learn who the others are, and start this node's jobs in it, in one round trip."""

from typing import Any

from k3deploy.remote.job_start import main as start_job
from k3deploy.remote.protocol import Say
from k3deploy.remote.swarm_peers import main as keep_peers


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: folder and peers (see swarm_peers), jobs (each as job_start takes it, with `secrets` a list of names);
    secrets: swarm_token, and those that the jobs name. Returns {"jobs"}: what job_start said of each.
    """
    secrets = args["secrets"]
    token = {"swarm_token": secrets["swarm_token"]}
    keep_peers({"folder": args["folder"], "peers": args["peers"], "secrets": token}, say)
    jobs = [{**job, "secrets": {name: secrets[name] for name in job["secrets"]}} for job in args["jobs"]]
    return {"jobs": [start_job(job, say) for job in jobs]}
