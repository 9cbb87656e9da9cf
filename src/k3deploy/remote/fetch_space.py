"""Room on the cache's disk: enough before a byte is fetched, and never quite full while files come in."""

import os

from k3deploy.remote.hub_cache import Repository, Wanted
from k3deploy.remote.partial_name import digest_of, is_resumable
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.tidy import drop_quarantined

_AGAIN = "run the same command again: finished files are kept"


def free_bytes(repository: Repository) -> int:
    """What an ordinary user may still write on the cache's disk."""
    status = os.statvfs(repository.hub)
    return status.f_bavail * status.f_frsize


def need_space(repository: Repository, missing: list[Wanted], floor_bytes: int) -> None:
    """Raise Refusal unless all of it fits, with `floor_bytes` to spare."""
    needed = sum(file.size_bytes for file in missing) - _kept_bytes(repository, missing) + floor_bytes
    if missing and free_bytes(repository) < needed:
        drop_quarantined(repository)
    free = free_bytes(repository)
    if missing and free < needed:
        raise Refusal(
            f"not enough space for the weights in {repository.hub}",
            why=f"{needed - free} bytes too few: {len(missing)} files are missing",
            fix="free space on that disk, or name a bigger one in storage.mount, then run the same command again",
            found=f"{free} bytes free",
            wanted=f"{needed} bytes",
            kind="disk",
        )


def keep_floor(repository: Repository, floor_bytes: int) -> None:
    """Raise Refusal when less is free, whoever took it."""
    if free_bytes(repository) >= floor_bytes:
        return
    drop_quarantined(repository)
    free = free_bytes(repository)
    if free < floor_bytes:
        raise Refusal(
            f"the disk of {repository.hub} is nearly full: the fetch was stopped",
            why="something else takes its space",
            fix=f"free space on that disk, then {_AGAIN}",
            found=f"{free} bytes free",
            wanted=f"at least {floor_bytes} bytes",
            kind="disk",
        )


def disk_is_full(repository: Repository, error: OSError) -> Refusal:
    """For a write of our own that did not fit."""
    return Refusal(
        f"the disk of {repository.hub} is full",
        why=str(error),
        fix=f"free space on that disk, then {_AGAIN}",
        kind="disk",
    )


def _kept_bytes(repository: Repository, missing: list[Wanted]) -> int:
    """Halves of files that lie here already and will be gone on with."""
    digests = {file.digest for file in missing}
    names = [name for name in repository.partials() if is_resumable(name) and digest_of(name) in digests]
    return sum(os.stat(repository.blob(name)).st_blocks * 512 for name in names)
