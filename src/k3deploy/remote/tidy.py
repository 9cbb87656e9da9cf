"""Make the cache fit to fetch into: remove what killed downloads left, move bad blobs aside, link what is there.

The Hub's client returns a file that exists without looking at its size or content, so a short or wrong one stays for
ever unless its link and its blob are taken away first.
"""

import contextlib
import os
import stat
import time
from typing import NamedTuple

from k3deploy.remote.hub_cache import Repository, Wanted, holders, move_aside
from k3deploy.remote.partial_name import resumable
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.stamps import Stamps
from k3deploy.remote.weights_check import bad_paths, look

_FOREIGN_PARTIAL_S = 600.0


class Tidied(NamedTuple):
    """`missing`: what has to come from the Hub. The rest is for the report."""

    missing: list[Wanted]
    removed_partials: list[str]
    quarantined: list[str]
    linked: int


def tidy(repository: Repository, files: list[Wanted], stamps: Stamps, *, resumes: bool) -> Tidied:
    """Take away what is wrong, and only that: finished files and other commits stay as they are.

    `resumes`: our own halves of missing files stay, because receivers will go on with them.
    """
    found, faults = look(repository, files)
    bad = bad_paths(files, found, stamps)
    wrong = {fault.path for fault in faults} | bad
    missing: list[Wanted] = []
    moved: list[str] = []
    linked = 0
    for file in files:
        if file.path in wrong:
            if make_way(repository, file, is_bad=file.path in bad):
                moved.append(file.path)
            if os.path.exists(repository.blob(file.digest)):
                link_blob(repository, file)
                linked += 1
            else:
                missing.append(file)
    removed = remove_partials(repository, {resumable(file.digest) for file in missing if resumes})
    return Tidied(missing, removed, moved, linked)


def make_way(repository: Repository, file: Wanted, *, is_bad: bool) -> bool:
    """Remove a file's link, and move its blob aside when that is of no use. Returns whether a blob was moved."""
    link, blob = repository.link(file.path), repository.blob(file.digest)
    if os.path.isfile(link) and not os.path.islink(link):  # a copy that keeps no links: the bytes are here
        move_aside(link, blob)
        return True
    _remove_link(link)
    if os.path.lexists(blob) and (is_bad or not _is_usable(repository, blob, file.size_bytes)):
        _move_aside(blob)
        return True
    return False


def drop_quarantined(repository: Repository) -> None:
    """Give the space of blobs that were moved aside back to the disk."""
    for name in repository.quarantined():
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # a folder was never ours
            os.unlink(repository.blob(name))


def link_blob(repository: Repository, file: Wanted) -> None:
    """Let the snapshot name a blob that is there."""
    link = repository.link(file.path)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    os.symlink(os.path.relpath(repository.blob(file.digest), os.path.dirname(link)), link)


def remove_partials(repository: Repository, kept: set[str]) -> list[str]:
    """Remove what killed downloads left, but for these names and what somebody writes to. Returns the names."""
    names = [name for name in repository.partials() if name not in kept]
    held = holders([repository.blob(name) for name in names])
    left = [name for name in names if repository.blob(name) not in held and _is_stale(repository.blob(name))]
    for name in left:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(repository.blob(name))
    return left


def _is_stale(partial: str) -> bool:
    """Nobody writes to it any more. We cannot look into processes of other users, so their files get time."""
    try:
        status = os.lstat(partial)
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(status.st_mode):
        return False  # no download leaves a folder
    can_see_holders = os.geteuid() in (0, status.st_uid)
    return can_see_holders or time.time() - status.st_mtime > _FOREIGN_PARTIAL_S


def _remove_link(link: str) -> None:
    try:
        os.unlink(link)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError) as error:
        is_closed = isinstance(error, PermissionError)
        mend = f"give {os.path.dirname(link)} to the user who runs this" if is_closed else "look at it and remove it"
        raise Refusal(
            f"{link} is in the way",
            why=str(error),
            fix=f"{mend}, then run the same command again",
            path=link,
            kind="disk",
        ) from error


def _is_usable(repository: Repository, blob: str, size_bytes: int) -> bool:
    real = os.path.realpath(blob)
    try:
        status = os.stat(real)
    except OSError:
        return False
    return real.startswith(repository.hub + os.sep) and stat.S_ISREG(status.st_mode) and status.st_size == size_bytes


def _move_aside(blob: str) -> None:
    """Keep the bytes of a bad blob for whoever looks into it (until space is short); of a link only the link goes."""
    if os.path.islink(blob):
        os.unlink(blob)
    else:
        move_aside(blob, blob)
