"""Let the name of a repository mean the pinned commit on this node: `refs/main`, written in one step.

The Hub's client writes it only when it was asked for a branch; without it an offline launch by name finds nothing.
"""

import os
from typing import Any

from k3deploy.remote.hub_cache import Repository
from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.protocol import Refusal, Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: hf_home and repo, or the repository's own folder; commit. Returns {"before"}: what the name meant."""
    if "folder" in args:
        repository = Repository.at(args["folder"], args["commit"])
    else:
        repository = Repository(args["hf_home"], args["repo"], args["commit"])
    return {"before": name_commit(repository)}


def name_commit(repository: Repository) -> "str | None":
    """Returns what the name meant before. Raises Refusal where we may not write."""
    before = repository.main_commit()
    if before != repository.commit:
        try:
            os.makedirs(os.path.dirname(repository.main_ref), exist_ok=True)
            write_atomically(repository.main_ref, repository.commit, mode=0o644)
        except OSError as error:
            chown = f"sudo chown -R $(id -un) {repository.hub}   (there, as the user who runs this)"
            raise Refusal(
                f"cannot write {repository.main_ref}",
                why=str(error),
                fix=chown
                if isinstance(error, PermissionError)
                else f"look at {repository.main_ref} and free its place",
                path=repository.main_ref,
            ) from error
    return before
