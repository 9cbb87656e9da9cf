"""Tell a node who the others of its run are, and what they trust each other by: files that only its user reads."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.own_folder import login_user, make
from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.protocol import Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: folder, peers ({run, nodes}: the addresses of all its nodes by name, null where the operator does not
    know one); secrets: swarm_token. Without peers and a token it only reads.

    A token that is there is kept: the nodes share by it already, whoever asks now. Returns {"token"}: the one that is
    in force here, or None.
    """
    folder = _Folder(args["folder"])
    token = args.get("secrets", {}).get("swarm_token")
    if token is not None or "peers" in args:
        with folder.alone():
            if token is not None and folder.read("token") is None:
                folder.write("token", token)
            if "peers" in args:
                folder.write("peers.json", json.dumps(_completed(args["peers"], folder.peers())))
    return {"token": folder.read("token")}


def _completed(peers: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    """A node that is only slow to answer the operator goes on as a peer by the address that is known here."""
    nodes = {name: address or known.get(name) for name, address in peers["nodes"].items()}
    return {**peers, "nodes": {name: address for name, address in nodes.items() if address is not None}}


class _Folder:
    """The run's folder for this; it and its files belong to the user whose jobs read them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._owner = login_user(None)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make the folder, and keep others who write here at the same moment waiting."""
        make(self._path, self._owner)
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def peers(self) -> dict[str, str]:
        return PeerList(os.path.join(self._path, "peers.json")).nodes()

    def read(self, name: str) -> str | None:
        """None for a file that is absent or empty."""
        try:
            with open(os.path.join(self._path, name), encoding="utf-8") as file:
                return file.read().strip() or None
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        path = os.path.join(self._path, name)
        write_atomically(path, text, mode=0o600)
        if os.geteuid() == 0:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
