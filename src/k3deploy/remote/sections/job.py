"""What became of a detached job. Reads only."""

from typing import Any

from k3deploy.remote.job_folder import JobFolder


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args["dir"]`: the job's folder. `state` is absent, running, finished or dead; the rest is what it wrote."""
    folder = JobFolder(args["dir"])
    state = folder.state()
    body = folder.read("result.json") if state == "finished" else None
    word = folder.read("progress.json") if state == "running" else None
    return {
        "state": state,
        "progress": word["progress"] if word else None,
        "result": body.get("result") if body else None,
        "error": body.get("error") if body else None,
        "fault": body.get("fault") if body else None,
    }
