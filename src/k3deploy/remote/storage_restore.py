"""Undo what a run did to a node's storage: daemon.json byte for byte, the folders that it made, its own folder.

Only what the run's journal names is touched. A folder that holds something of somebody else stays, and is reported.
"""

import contextlib
import os
import shutil
import signal
from typing import Any

from k3deploy.remote.docker_config import (
    ABSENT_SUFFIX,
    DAEMON_JSON,
    backup_path,
    config_digest,
    forget_backup,
    kept_config,
    put_config,
    read_config,
)
from k3deploy.remote.docker_lock import changing_docker
from k3deploy.remote.docker_move import refuse_running
from k3deploy.remote.docker_unit import DockerService, UnitFailed
from k3deploy.remote.dockerd import SOCKET_PATH, Dockerd, DockerRefused, NoDaemon, image_path
from k3deploy.remote.journal import Journal
from k3deploy.remote.protocol import Refusal, Say

_SHOWN = 5
# 40 GB of unpacked layers on a busy disk.
_IMAGE_REMOVAL_S = 300.0


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: run_dir, run_id, images (references that this run pulled), optionally socket and daemon_json.

    Returns {"restored": [paths], "removed": [paths], "kept": [{path, why}]}. Doing it again finds nothing to do.
    Raises Refusal when other runs use this node's storage, containers run, or daemon.json was edited meanwhile.
    """
    # As in docker_move: a lost connection must not leave the node without Docker.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with changing_docker():
        return restore(args, say, DockerService(Dockerd(args.get("socket") or SOCKET_PATH)))


def restore(args: dict[str, Any], say: Say, docker: DockerService) -> dict[str, Any]:
    """As `main`, on the given service."""
    run_dir = args["run_dir"]
    journal = Journal(run_dir)
    entries = journal.entries()
    done: dict[str, list[Any]] = {"restored": [], "removed": [], "kept": []}
    configs = [each for each in entries if each["kind"] == "daemon-json"] or _from_backup(args)
    if configs:
        _refuse_siblings(run_dir)
    for entry in [each for each in entries if each["kind"] == "image"]:
        why = _remove_image(docker.daemon, entry["path"])
        if why:
            done["kept"].append({"path": entry["path"], "why": why})
        else:
            done["removed"].append(entry["path"])
        journal.drop(entry)
    for entry in configs:
        left = _restore(entry, args, docker, say)
        done["restored"].append(entry["path"])
        # A disk that was wiped during the run has no journal of before: what Docker made there since, by the
        # configuration that the run wrote, and filled with this run's images alone, came of the run.
        is_after_wipe = entry not in entries
        # Noted first, so that an undo that is cut off here still knows it when it goes on.
        if left is not None and (is_after_wipe or any(each["path"] == left for each in entries)):
            journal.add({"kind": "folder", "path": left, "is_left_by_docker": True})
        if not is_after_wipe:
            journal.drop(entry)
    for entry in reversed([each for each in journal.entries() if each["kind"] == "folder"]):
        why = _remove(entry["path"], is_all_ours=entry.get("is_left_by_docker", False))
        if why:
            done["kept"].append({"path": entry["path"], "why": why})
        else:
            done["removed"].append(entry["path"])
    if os.path.isdir(run_dir):
        shutil.rmtree(run_dir)
        done["removed"].append(run_dir)
    with contextlib.suppress(OSError):  # other runs live there
        os.rmdir(os.path.dirname(run_dir))
    return done


def _remove_image(daemon: Dockerd, reference: str) -> str:
    """Remove an image that the run pulled, by its digest. Returns why it stays, or "" when it is gone."""
    try:
        daemon.delete(image_path(reference).removesuffix("/json"), timeout_s=_IMAGE_REMOVAL_S)
    except DockerRefused as refused:
        return "" if refused.status == 404 else refused.message  # 409: somebody else's container uses it
    except NoDaemon as error:
        return str(error)
    return ""


def _from_backup(args: dict[str, Any]) -> list[dict[str, Any]]:
    """The disk with the journal may have been wiped; the backup beside daemon.json bears the run's name, too."""
    path = args.get("daemon_json") or DAEMON_JSON
    backup = backup_path(path, args["run_id"])
    is_there = os.path.exists(backup) or os.path.exists(backup + ABSENT_SUFFIX)
    return [{"kind": "daemon-json", "path": path, "backup": backup, "written_sha256": None}] if is_there else []


def _refuse_siblings(run_dir: str) -> None:
    base, own = os.path.split(run_dir)
    others = sorted(name for name in os.listdir(base) if name != own) if os.path.isdir(base) else []
    if others:
        raise Refusal(
            "other runs still use this node's storage",
            why="Docker's data would move away under them",
            fix="tear those down first: "
            + ", ".join(f"`k3deploy teardown --run-id {name} --restore --confirm`" for name in others),
            found=", ".join(others),
        )


def _restore(entry: dict[str, Any], args: dict[str, Any], docker: DockerService, say: Say) -> str | None:
    """Put daemon.json back and restart Docker. Returns the folder that Docker left, if only this run filled it."""
    path, backup = entry["path"], entry["backup"]
    is_kept, old = kept_config(backup)
    if not is_kept:
        return None  # undone already, or never begun
    now = read_config(path)
    written = entry["written_sha256"]
    if written is not None and config_digest(now) not in (written, config_digest(old)):
        raise Refusal(
            f"{path} was edited after this run had replaced it",
            why="putting the old file back would undo somebody's work",
            fix=f"merge {path} and {backup} by hand, restart Docker, remove {backup}, then run the same command again",
            path=path,
        )
    own_root = _own_root(docker.daemon, args["images"])
    with contextlib.suppress(NoDaemon):
        refuse_running(docker.daemon)
    say({"message": "restarting Docker"})  # the last word before the end, as in docker_move
    active: list[str] = []
    try:
        active = docker.stop()
        put_config(path, old)
        root = docker.start(active)["DockerRootDir"]
    except (UnitFailed, OSError) as error:
        raise _undone(path, now, active, docker, error) from error
    if old is not None:
        os.replace(backup, os.path.realpath(path))  # the same bytes, with the times and mode of before
    forget_backup(backup)
    return own_root if own_root != root else None


def _own_root(daemon: Dockerd, images: list[str]) -> str | None:
    """Docker's folder, when nothing is in it but images of this run; None when there is more, or nobody can tell."""
    try:
        root: str = daemon.get("/info")["DockerRootDir"]
        containers = daemon.get("/containers/json", all="1")
        volumes = (daemon.get("/volumes") or {}).get("Volumes") or []
        digests = [name for row in daemon.get("/images/json") for name in row.get("RepoDigests") or ["<none>"]]
        tags = [name for row in daemon.get("/images/json") for name in row.get("RepoTags") or []]
    except (NoDaemon, DockerRefused):
        return None
    is_ours = not containers and not volumes and not tags and set(digests) <= set(images)
    return root if is_ours else None


def _undone(path: str, now: bytes | None, active: list[str], docker: DockerService, error: Exception) -> Refusal:
    try:
        with contextlib.suppress(UnitFailed):
            docker.stop()
        put_config(path, now)
        docker.start(active)
        state = "it runs with the new one again"
    except (UnitFailed, OSError) as second:
        state = f"nor with the new one: {second}"
    return Refusal(
        f"Docker did not start with its old {path}",
        why=f"{error}; {state}",
        fix="look at `sudo journalctl -u docker` on the node, then run the same command again",
        path=path,
    )


def _remove(path: str, *, is_all_ours: bool) -> str:
    """Remove a folder that the run made. Returns why it stays, or "" when it is gone."""
    if not os.path.isdir(path):
        return ""
    if is_all_ours:
        shutil.rmtree(path)
        return ""
    _remove_empty(path)
    if not os.path.isdir(path):
        return ""
    inside = sorted(os.listdir(path))
    more = "" if len(inside) <= _SHOWN else f" and {len(inside) - _SHOWN} more"
    return f"not empty: {', '.join(inside[:_SHOWN])}{more}"


def _remove_empty(path: str) -> None:
    """Remove folders without files, innermost first; all of them were made after the run made the outermost."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
