"""Tell a node who the others of its run are, and what they trust each other by: files that only its user reads."""

import json
import os
from typing import Any

from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.own_folder import login_user, make
from k3deploy.remote.protocol import Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: folder, peers (the list as JSON), replace (a token that is there too); secrets: swarm_token.
    Without peers and a token it only reads.

    A token that is there is kept: the nodes share by it already, whoever asks now. Returns {"token"}: the one that is
    in force here, or None.
    """
    folder = _Folder(args["folder"])
    token = args.get("secrets", {}).get("swarm_token")
    if token is not None and (args.get("replace") or folder.read("token") is None):
        folder.write("token", token)
    if "peers" in args:
        folder.write("peers.json", json.dumps(args["peers"]))
    return {"token": folder.read("token")}


class _Folder:
    """The run's folder for this; it and its files belong to the user whose jobs read them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._owner = login_user(None)

    def read(self, name: str) -> str | None:
        """None for a file that is absent or empty."""
        try:
            with open(os.path.join(self._path, name), encoding="utf-8") as file:
                return file.read().strip() or None
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        make(self._path, self._owner)
        path = os.path.join(self._path, name)
        write_atomically(path, text, mode=0o600)
        if os.geteuid() == 0:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
