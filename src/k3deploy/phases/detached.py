"""Long work on a node as a detached job: started once, followed from here, going on there when we are cut off."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Secret
from k3deploy.domain.errors import Interrupted
from k3deploy.domain.names import NodeName

START_TIMEOUT_S: Final = 90.0

# The numbers of a job's word that the bar shows; all others travel by their names.
_BAR: Final = frozenset({"done", "total"})


@dataclass(frozen=True)
class DetachedJob:
    """`id` names the unit (k3deploy-<id>), `folder` keeps its words; `entry` is a module of `remote/`.

    `silent_s`: the longest time without a word from it; `timeout_s`: the longest time that we follow it.
    """

    node: NodeName
    id: str
    folder: str
    entry: str
    args: Mapping[str, Any]
    silent_s: float
    timeout_s: float
    user: str | None = None
    secrets: Mapping[str, Secret] = field(default_factory=dict)

    def start_args(self) -> dict[str, Any]:
        """What `remote/job_start.py` takes."""
        return {"id": self.id, "dir": self.folder, "entry": self.entry, "args": dict(self.args), "user": self.user}


def follow_job(svc: Services, job: DetachedJob, progress: Progress) -> Mapping[str, Any]:
    """Start the job unless it runs already, and pass its words on until it ends. Returns its result.

    Raises ProgramFailed with the job's own words, NodeUnreachable when the connection broke (the job goes on), and
    Interrupted after a Ctrl-C (the job goes on).
    """
    svc.nodes[job.node].call(
        Program(
            "job_start",
            job.start_args(),
            secrets=job.secrets,
            includes=("job", job.entry),
            sudo=True,
            timeout_s=START_TIMEOUT_S,
        )
    )
    return watch_job(svc, job, progress)


def watch_job(svc: Services, job: DetachedJob, progress: Progress) -> Mapping[str, Any]:
    """`follow_job` for a job that was started already."""
    node = svc.nodes[job.node]
    watch = {"dir": job.folder, "silent_s": job.silent_s}
    result: Mapping[str, Any] = {}
    for line in node.follow(Program("job_watch", watch, sudo=True, timeout_s=job.timeout_s)):
        if "result" in line:
            result = line["result"]
            break
        _tell(progress, line["progress"])
        if svc.cancel.is_set:
            raise Interrupted(
                what=f"interrupted while following {job.entry} on {job.node}, which goes on there",
                fix="run the same command again: it finds the job where it is then",
            )
    return result


def _tell(progress: Progress, word: Mapping[str, Any]) -> None:
    numbers = {key: float(value) for key, value in word.items() if key not in _BAR and _is_number(value)}
    progress(word["message"], done=word.get("done"), total=word.get("total"), numbers=numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
