"""What this node holds of a repository: which files have still to come, which are proved, what else lies there.

Reads no weights: `stat` and the stamps of an earlier proof. Reads only.
"""

from typing import Any

from k3deploy.remote.hub_cache import Repository, wanted_files
from k3deploy.remote.reads import bytes_read
from k3deploy.remote.stamps import Stamps
from k3deploy.remote.weights_check import bad_paths, digest_fault, leftovers, look, summary


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: hf_home, manifest.

    `missing`: {path, kind, found, wanted} of each file that is absent, short, wrongly linked or known to be bad.
    `read_bytes`: what this look itself read, from /proc.
    """
    before = bytes_read()
    manifest = args["manifest"]
    repository = Repository(args["hf_home"], manifest["repo"], manifest["commit"])
    files = wanted_files(manifest)
    stamps = Stamps(repository)
    found, faults = look(repository, files)
    bad = bad_paths(files, found, stamps)
    faults += [digest_fault(file, stamps.digest_of(file, found[file.path]) or "") for file in files if file.path in bad]
    missing = [fault.as_dict() for fault in faults]
    absent = {fault["path"] for fault in missing}
    proved = [file for file in files if file.path in found and stamps.digest_of(file, found[file.path]) == file.digest]
    return {
        **summary(files),
        "missing": missing,
        "missing_bytes": sum(file.size_bytes for file in files if file.path in absent),
        "proved": len(proved),
        "is_structure_proved": len(found) == len(files) and stamps.is_structure_proved(found),
        "main_commit": repository.main_commit(),
        "other_commits": repository.other_commits(),
        **leftovers(repository),
        "read_bytes": bytes_read() - before,
    }
