"""Make a folder of ours, and those above it, for the user who logged in. Asked for as root: disks belong to root."""

import os
import pwd
from typing import Any

from k3deploy.remote.protocol import Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args["paths"]`: folders to make. The last part of each one then belongs to the login user."""
    owner = login_user(args.get("user"))
    for path in args["paths"]:
        make(path, owner)
        if os.geteuid() == 0:
            os.chown(path, owner.pw_uid, owner.pw_gid)
    return {"user": owner.pw_name}


def login_user(name: str | None) -> pwd.struct_passwd:
    """The named user, else whoever called sudo, else whoever we are."""
    name = name or (os.environ.get("SUDO_USER") if os.geteuid() == 0 else None)
    return pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())


def make(path: str, owner: pwd.struct_passwd) -> None:
    """Create what is missing of a path; what we create is the owner's, what was there stays as it is."""
    if os.path.isdir(path):
        return
    make(os.path.dirname(path), owner)
    os.mkdir(path, 0o755)
    if os.geteuid() == 0:
        os.chown(path, owner.pw_uid, owner.pw_gid)
