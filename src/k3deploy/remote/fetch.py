"""Bring a repository's files to this node, by itself or together with others: only what is missing, and never stuck.

What huggingface_hub does not do is done here: a file that is there is not trusted by its name, leftovers of killed
downloads are removed, 5xx answers are tried again, a transfer that stands still is killed and taken up another way,
what has landed is hashed, and a full disk ends the fetch before it is quite full.
"""

import errno
import fcntl
import os
import time
from typing import Any

from k3deploy.remote.fetch_end import settle
from k3deploy.remote.fetch_failure import DISK_FULL_ERRNOS
from k3deploy.remote.fetch_ledger import Ledger
from k3deploy.remote.fetch_policy import Alone
from k3deploy.remote.fetch_queue import HUB_HINTS, STORE_HINTS, FetchQueue
from k3deploy.remote.fetch_run import FetchRun
from k3deploy.remote.fetch_space import disk_is_full, need_space
from k3deploy.remote.hub_cache import Repository, Wanted, wanted_files
from k3deploy.remote.protocol import Refusal, Say
from k3deploy.remote.stamps import Stamps
from k3deploy.remote.swarm_start import join, unproved_files
from k3deploy.remote.tidy import tidy


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: hf_home, manifest, in_flight, stall_s, floor_bytes (the fetch ends when less is free), scratch (a folder
    of ours), wait_base_s; strategy: "hub", "swarm" or "auto", which need swarm (run, node, peers_file, ports);
    origin: "client" needs client (a folder for sys.path) and environment, "urls" is a store.
    secrets: hf_token, swarm_token, urls (JSON text: path -> URL).

    Raises Refusal with kind "hub" or "disk" in its context.
    """
    manifest = args["manifest"]
    repository = Repository(args["hf_home"], manifest["repo"], manifest["commit"])
    lock = _own(repository, args["hf_home"])
    try:
        return _fetch(args, repository, wanted_files(manifest), say)
    except OSError as error:  # in the client it is a failure of one file; here our own files did not fit
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise disk_is_full(repository, error) from error
    finally:
        os.close(lock)


def _fetch(args: dict[str, Any], repository: Repository, files: list[Wanted], say: Say) -> dict[str, Any]:
    started = time.monotonic()
    has_urls, is_swarm = args.get("origin") == "urls", args.get("strategy", "hub") != "hub"
    stamps = Stamps(repository)
    tidied = tidy(repository, files, stamps, resumes=has_urls or is_swarm)
    need_space(repository, tidied.missing, args["floor_bytes"])
    unproved = unproved_files(repository, files, tidied.missing, stamps) if is_swarm else []
    lacking = [*tidied.missing, *unproved]
    ledger = Ledger(repository, stamps, files, lacking)
    queue = FetchQueue(lacking, wait_base_s=args["wait_base_s"], hints=STORE_HINTS if has_urls else HUB_HINTS)
    if lacking:
        policy = join(args, repository, lacking, queue) if is_swarm else Alone(queue, lacking)
        FetchRun(args, repository, queue, policy, ledger, say).run()
    return {
        "commit": repository.commit,
        "is_proved": settle(repository, files, stamps),
        "fetched": len(tidied.missing),
        "fetched_bytes": sum(file.size_bytes for file in tidied.missing),
        "kept": len(files) - len(tidied.missing),
        "linked": tidied.linked,
        "removed_partials": len(tidied.removed_partials),
        "quarantined": tidied.quarantined,
        "retries": queue.retries,
        "stalls": queue.stalls,
        "hub_bytes": ledger.hub.came_bytes,
        "peer_bytes": ledger.lan.came_bytes,
        "strategy": args.get("strategy", "hub"),
        "seconds": time.monotonic() - started,
    }


def _own(repository: Repository, hf_home: str) -> int:
    """Make the cache's folders, as this user, and keep every other fetch of ours out of this repository."""
    locks = os.path.join(repository.hub, ".locks", os.path.basename(repository.folder))
    try:
        for folder in (repository.blobs, repository.snapshot, locks):
            _make_writable(folder)
        lock = os.open(os.path.join(locks, "k3deploy.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError as error:
        raise Refusal(
            f"cannot write to the Hugging Face cache in {hf_home}",
            why=f"{error}: it was filled by another user",
            fix=f"sudo chown -R $(id -un) {hf_home}   (on the node, as the login user)",
            path=str(error.filename),
            found=f"user {os.geteuid()}",
            kind="disk",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise Refusal(
            f"another fetch of {os.path.basename(repository.folder)} is running on this node",
            why="it belongs to another run: two would only take each other's bandwidth",
            fix="wait for it, or tear that run down, then run the same command again",
            kind="disk",
        ) from error
    return lock


def _make_writable(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
