"""Prove a repository's files on this node: sizes, headers and index, then the digest of every byte.

Faults are data in the result, not failures of the program: whoever asked decides what they mean.
"""

import time
from typing import Any

from k3deploy.remote.hash_pool import HashPool, Task, process_count
from k3deploy.remote.hub_cache import Fault, Found, Repository, Wanted, wanted_files
from k3deploy.remote.protocol import Say
from k3deploy.remote.stamps import Stamps, is_unchanged
from k3deploy.remote.weights_check import leftovers, look, structure_faults, summary

_SAVE_EVERY_S = 5.0


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: hf_home, manifest, level, optionally processes.

    level "quick": nothing is hashed; "resume": hash what no stamp covers; "full": hash everything, from the disk.
    """
    started = time.monotonic()
    manifest = args["manifest"]
    repository = Repository(args["hf_home"], manifest["repo"], manifest["commit"])
    files = wanted_files(manifest)
    stamps = Stamps(repository)
    found, faults = look(repository, files)
    shape = structure_faults(files, found)
    faults += shape

    waiting = [] if args["level"] == "quick" else _unknown(files, found, stamps, is_full=args["level"] == "full")
    if waiting:
        processes = args.get("processes") or process_count(len(waiting))
        _hash(waiting, found, stamps, processes, args["level"] == "full", say)
    if args["level"] != "quick":
        if not shape and len(found) == len(files):
            stamps.put_structure(found)
        stamps.save()

    known = {file.path: stamps.digest_of(file, found[file.path]) for file in files if file.path in found}
    faults += [
        Fault(file.path, "digest", known[file.path] or "", file.digest)
        for file in files
        if known.get(file.path) not in (None, file.digest)
    ]
    return {
        "commit": repository.commit,
        **summary(files),
        "level": args["level"],
        "faults": [fault.as_dict() for fault in faults],
        "mismatches": {file.path: count for file in files if (count := stamps.mismatches(file)) > 1},
        "hashed": len(waiting),
        "hashed_bytes": sum(file.size_bytes for file in waiting),
        "proved": sum(1 for file in files if known.get(file.path) == file.digest),
        "proved_at": stamps.hashed_at(),
        "main_commit": repository.main_commit(),
        "other_commits": repository.other_commits(),
        **leftovers(repository),
        "seconds": time.monotonic() - started,
    }


def _unknown(files: list[Wanted], found: dict[str, Found], stamps: Stamps, *, is_full: bool) -> list[Wanted]:
    return [
        file for file in files if file.path in found and (is_full or stamps.digest_of(file, found[file.path]) is None)
    ]


def _hash(
    waiting: list[Wanted], found: dict[str, Found], stamps: Stamps, processes: int, is_cold: bool, say: Say
) -> None:
    """Hash and stamp. What the disk would not give back is stamped as bad, with its reason for a digest."""
    tasks = [
        Task(number, found[file.path].real, file.size_bytes, file.is_sha256) for number, file in enumerate(waiting)
    ]
    total = sum(task.size_bytes for task in tasks)
    saved = time.monotonic()
    try:
        with HashPool(processes, is_cold=is_cold) as pool:
            for result in pool.run(tasks):
                if result is not None:
                    file = waiting[result.number]
                    if is_unchanged(found[file.path]):
                        stamps.put(file, found[file.path], result.digest or f"unreadable ({result.error})")
                now = time.monotonic()
                if now - saved > _SAVE_EVERY_S:
                    stamps.save()
                    saved = now
                say({"message": "hashing weights", "done": pool.bytes_done, "total": total})
    finally:
        stamps.save()  # stopped half-way: what was hashed need not be hashed again
