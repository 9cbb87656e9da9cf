"""Prove a repository's files on this node: sizes, headers and index, then the digest of every byte.

Faults are data in the result, not failures of the program: whoever asked decides what they mean.
"""

import time
from typing import Any

from k3deploy.remote.hub_cache import wanted_files
from k3deploy.remote.proof import Proof
from k3deploy.remote.protocol import Refusal, Say
from k3deploy.remote.reads import bytes_read
from k3deploy.remote.stamps import Stamps
from k3deploy.remote.weights_check import leftovers, look, running_faults, structure_faults, summary, unreadable_faults
from k3deploy.remote.weights_place import place


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: those of `place`, and level. Optional: keep_cached (what is read stays in memory), threads, may_forget
    (go on where stamps cannot be kept, and say so in `forgotten`).

    level "quick": small files alone are hashed, and nothing is written; "resume": hash what no stamp covers;
    "full": hash everything, from the disk.
    """
    started, read_before = time.monotonic(), bytes_read()
    level = args["level"]
    repository = place(args)
    files = wanted_files(args["manifest"])
    stamps = Stamps(repository)
    found, faults = look(repository, files)
    has_news = level != "quick" and bool(found)  # of an empty disk there is nothing to keep: it stays empty
    forgotten = _prove_kept(stamps, may_forget=args.get("may_forget", False)) if has_news else ""
    lying = leftovers(repository)
    closed = unreadable_faults(files, found)
    shape = structure_faults(files, {path: each for path, each in found.items() if path not in closed})
    faults += [*running_faults(files, lying["partials"]), *closed.values(), *shape]

    proof = Proof(files, found, stamps, level, keeps_stamps=has_news and not forgotten)
    proof.hash(args.get("threads"), say, keep_cached=args.get("keep_cached", False))
    if level != "quick" and not shape and len(found) == len(files):
        stamps.put_structure(found)
    proof.save()

    said = {(fault.path, fault.kind) for fault in faults}
    faults += [fault for fault in proof.faults() if (fault.path, fault.kind) not in said]
    return {
        "commit": repository.commit,
        **summary(files),
        "level": level,
        "faults": [fault.as_dict() for fault in faults],
        **proof.figures(),
        "forgotten": forgotten,
        "main_commit": repository.main_commit(),
        "other_commits": repository.other_commits(),
        **lying,
        "read_bytes": bytes_read() - read_before,
        "seconds": time.monotonic() - started,
    }


def _prove_kept(stamps: Stamps, *, may_forget: bool) -> str:
    """Before minutes of reading: that what they find out can be kept. Returns why not, where that is no reason to stop.

    Raises Refusal.
    """
    try:
        stamps.save()
    except Refusal as refusal:
        if may_forget:
            return f"{refusal.what}: {refusal.why}"
        raise
    return ""
