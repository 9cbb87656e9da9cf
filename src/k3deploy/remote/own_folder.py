"""Who logged in, and folders that are theirs although root makes them: disks belong to root."""

import os
import pwd


def login_user(name: str | None) -> pwd.struct_passwd:
    """The named user, else whoever called sudo, else whoever we are."""
    name = name or (os.environ.get("SUDO_USER") if os.geteuid() == 0 else None)
    return pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())


def make(path: str, owner: pwd.struct_passwd) -> None:
    """Create what is missing of a path; what we create is the owner's, what was there stays as it is."""
    if os.path.isdir(path):
        return
    make(os.path.dirname(path), owner)
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return  # another program of ours was quicker, and gives it its owner
    if os.geteuid() == 0:
        os.chown(path, owner.pw_uid, owner.pw_gid)
