"""Make the folders of a run on the storage mount, and note them in its journal. What is there already stays so."""

import contextlib
import os
import pwd
import stat
from typing import Any

from k3deploy.remote.journal import Journal
from k3deploy.remote.own_folder import login_user
from k3deploy.remote.protocol import Refusal, Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: mount, run_dir, folders [{path, owner: "login" | "root", mode}]. Returns {"made": [paths]}.

    Raises Refusal when the mount is no mount point (any longer): folders would land on the root disk.
    """
    if not os.path.ismount(args["mount"]):
        raise Refusal(
            f"{args['mount']} is not a mount point",
            why="folders made now would land on the root disk",
            fix="mount the data disk there, then run the same command again",
            path=args["mount"],
        )
    login = login_user(None)
    made: list[str] = []
    run_dir = args["run_dir"]
    # Ours by their names alone, so they need no journal entry.
    base = os.path.dirname(run_dir)
    _make(base, pwd.getpwuid(os.geteuid()), 0o755, made)
    _refuse_foreign(base, login)
    _make(run_dir, login, 0o700, made)
    _refuse_foreign(run_dir, login)
    os.chmod(run_dir, 0o700)
    if os.geteuid() == 0:
        os.chown(run_dir, login.pw_uid, login.pw_gid)
    journal = Journal(run_dir)
    for folder in args["folders"]:
        owner = login if folder["owner"] == "login" else pwd.getpwuid(os.geteuid())
        for path in missing(folder["path"]):
            journal.add({"kind": "folder", "path": path})
            _make(path, owner, folder["mode"], made)
    return {"made": made}


def missing(path: str) -> list[str]:
    """The parts of a path that do not exist, outermost first."""
    if os.path.isdir(path):
        return []
    return [*missing(os.path.dirname(path)), path]


def _refuse_foreign(path: str, login: pwd.struct_passwd) -> None:
    """The run's folder keeps keys: no other user may have put something else in its place."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, login.pw_uid):
        raise Refusal(
            f"{path} is not a folder of ours",
            why="it is a link, a file, or belongs to another user, and keys would be kept below it",
            fix=f"look at `ls -ld {path}` on the node and move it out of the way",
            path=path,
        )


def _make(path: str, owner: pwd.struct_passwd, mode: int, made: list[str]) -> None:
    """Owner and mode are right from the first moment the name exists: an interruption leaves no half-made folder."""
    if os.path.isdir(path):
        return
    draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}")
    os.mkdir(draft)
    try:
        os.chmod(draft, mode)
        if os.geteuid() == 0:
            os.chown(draft, owner.pw_uid, owner.pw_gid)
        os.rename(draft, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.rmdir(draft)
        if isinstance(error, OSError) and os.path.isdir(path):
            return  # another node made it on the volume that they share
        raise
    made.append(path)
