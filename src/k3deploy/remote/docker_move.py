"""Move Docker's storage: new daemon.json, restart, read back; anything wrong on the way, and all is as it was before.

Nothing is copied and nothing is pruned: images and stopped containers of the old place stay there, out of sight until
the old configuration is back.
"""

import contextlib
import os
import signal
from typing import Any

from k3deploy.remote.docker_config import (
    backup_path,
    config_digest,
    keep_config,
    put_config,
    read_config,
    validate_config,
)
from k3deploy.remote.docker_lock import changing_docker
from k3deploy.remote.docker_unit import SOCKET_UNIT, DockerService, UnitFailed
from k3deploy.remote.dockerd import CONTAINERD_STORE, SOCKET_PATH, Dockerd
from k3deploy.remote.journal import Journal
from k3deploy.remote.protocol import Refusal, Say
from k3deploy.remote.storage_folders import missing


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: mount, run_dir, run_id, daemon_json (path), seen_sha256 (of the file that was planned on; null: none),
    text (the new file), can_validate, may_use_containerd (its images are on the mount, too), optionally socket.

    Returns {"root", "driver_type", "backup"}. Raises Refusal; then the old file and a running daemon are back.
    """
    # From the restart on a lost connection must not leave the node without Docker: no hang-up is heard.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with changing_docker():
        return move(args, say, DockerService(Dockerd(args.get("socket") or SOCKET_PATH)))


def move(args: dict[str, Any], say: Say, docker: DockerService) -> dict[str, Any]:
    """As `main`, on the given service."""
    path = args["daemon_json"]
    old = read_config(path)  # for the way back; the run's backup may be older
    new = args["text"].encode()
    if config_digest(old) != args["seen_sha256"]:
        raise Refusal(
            f"{path} was changed a moment ago by somebody else",
            why="the change was worked out on what it held before",
            fix="run the same command again",
            path=path,
        )
    if not os.path.ismount(args["mount"]):
        raise Refusal(f"{args['mount']} is not a mount point", fix="mount the data disk there", path=args["mount"])
    refuse_running(docker.daemon)
    journal = Journal(args["run_dir"])
    for folder in missing(os.path.dirname(path)):
        journal.add({"kind": "folder", "path": folder})
        os.mkdir(folder, 0o755)
    if args["can_validate"]:
        validate_config(new, path)
    backup = backup_path(path, args["run_id"])
    say({"message": "restarting Docker"})  # the last word before the end: a lost reader must not end us in between
    keep_config(path, backup)
    journal.add({"kind": "daemon-json", "path": path, "backup": backup, "written_sha256": config_digest(new)})
    active = [SOCKET_UNIT]
    try:
        active = docker.stop()
        put_config(path, new)
        info = docker.start(active)
        driver_type = dict(row for row in info.get("DriverStatus") or [] if len(row) == 2).get("driver-type")
        _check_place(info["DockerRootDir"], args["mount"])
        if driver_type == CONTAINERD_STORE and not args["may_use_containerd"]:
            raise _in_containerd()
    except (UnitFailed, Refusal, OSError) as error:
        raise _undone(path, old, active, docker, error) from error
    return {"root": info["DockerRootDir"], "driver_type": driver_type, "backup": backup}


def refuse_running(daemon: Dockerd) -> None:
    """A restart with another root takes every running container's floor away, so it waits until there are none."""
    running = [row for row in daemon.get("/containers/json") if row.get("Names")]
    if running:
        names = ", ".join(row["Names"][0].lstrip("/") for row in running)
        raise Refusal(
            f"{len(running)} containers are running",
            why="Docker must be restarted to move its storage, and they would not survive that",
            fix="stop them if they may go (`sudo docker stop NAME`), then run the same command again",
            found=names,
        )


def _check_place(root: str, mount: str) -> None:
    if os.stat(root).st_dev != os.stat(mount).st_dev:
        raise Refusal(
            f"Docker came back with its storage at {root}, which is not on {mount}",
            why="something else than daemon.json decides where it is",
            fix="look at `systemctl cat docker` and at /etc/default/docker on the node",
            found=root,
        )


def _in_containerd() -> Refusal:
    return Refusal(
        "Docker keeps its images in containerd, outside of its own root",
        why="it came back with the containerd image store, although daemon.json turns that off",
        fix="move containerd's root onto the data disk (`root` in /etc/containerd/config.toml), then try again",
    )


def _undone(path: str, old: bytes | None, active: list[str], docker: DockerService, error: Exception) -> Refusal:
    """Put the old file back and start Docker with it; say how both attempts went."""
    why = error.what if isinstance(error, Refusal) else str(error)
    try:
        with contextlib.suppress(UnitFailed):  # it may be what failed before; the start tells
            docker.stop()
        put_config(path, old)
        docker.start(active)
    except (UnitFailed, OSError) as second:
        return Refusal(
            "Docker did not start with its new storage, nor again with the old",
            why=f"{why}; then: {second}",
            fix=f"look at `sudo journalctl -u docker` on the node; {path} holds what it held before",
            path=path,
        )
    return Refusal(
        "Docker did not start with its new storage",
        why=f"{why}; {path} is as it was before, and Docker runs with it",
        fix=getattr(error, "fix", "") or f"look at `sudo journalctl -u docker` on the node, correct {path}, try again",
        path=path,
    )
