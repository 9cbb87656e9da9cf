"""Everything that can be told about a repository's files without hashing them: presence, sizes, headers, index."""

import json
import os
from collections import Counter
from typing import Any

from k3deploy.remote.hub_cache import Fault, Found, Repository, Wanted, holders
from k3deploy.remote.partial_name import digest_of
from k3deploy.remote.safetensors_header import BadHeader, tensor_names
from k3deploy.remote.stamps import Stamps, why_unreadable

_INDEX = ".safetensors.index.json"


def look(repository: Repository, files: list[Wanted]) -> tuple[dict[str, Found], list[Fault]]:
    """`stat` every file: those with the right link and size, and what is wrong with the others."""
    found: dict[str, Found] = {}
    faults: list[Fault] = []
    for file in files:
        seen = repository.look_at(file)
        if isinstance(seen, Found):
            found[file.path] = seen
        else:
            faults.append(seen)
    return found, faults


def unreadable_faults(files: list[Wanted], found: dict[str, Found]) -> dict[str, Fault]:
    """Files with the right size that this user may not read, by path."""
    return {
        file.path: _unreadable(file.path, "a file that this user may not read")
        for file in files
        if file.path in found and not os.access(found[file.path].real, os.R_OK)
    }


def running_faults(files: list[Wanted], partials: list[dict[str, Any]]) -> list[Fault]:
    """Files that some process is downloading now, by their blobs' names: what lies there may be replaced any moment."""
    by_digest = {file.digest: file for file in files}
    writers = {digest_of(each["name"]): each["pid"] for each in partials if each["pid"] is not None}
    return [
        Fault(by_digest[digest].path, "running", f"a download by process {pid}", "a finished one")
        for digest, pid in writers.items()
        if digest in by_digest
    ]


def structure_faults(files: list[Wanted], found: dict[str, Found]) -> list[Fault]:
    """Read each shard's header and the index, and compare: every tensor is where the index says, and nowhere else.

    Before SGLang pull request 32279 (July 2026) a shard that the index names and the folder lacks was skipped without
    a word, and its weights stayed uninitialised: so the index must name only files of the manifest.
    """
    faults: list[Fault] = []
    indexes = []
    for file in files:
        if file.path.endswith(_INDEX) and file.path in found:
            try:
                indexes.append(_Index(file.path, found[file.path].real))
            except BadIndex as error:
                faults.append(Fault(file.path, "index", str(error), "JSON with a weight_map of tensors to files"))
            except OSError as error:
                faults.append(_unreadable(file.path, str(error)))
    for file in files:
        if file.is_shard and file.path in found:
            try:
                names = tensor_names(found[file.path].real, file.size_bytes)
            except BadHeader as error:
                faults.append(Fault(file.path, "header", str(error), "a header that accounts for every byte"))
            except OSError as error:
                faults.append(_unreadable(file.path, str(error)))
            else:
                faults += [fault for index in indexes for fault in index.faults_of(file.path, names)]
    paths = {file.path for file in files}
    return faults + [fault for index in indexes for fault in index.strangers(paths)]


class BadIndex(Exception):
    """The index cannot be what a writer of checkpoints wrote. The message says what is wrong."""


class _Index:
    """One index file, read once: which shard of its folder holds which tensor."""

    def __init__(self, path: str, real: str) -> None:
        """Raises OSError or BadIndex."""
        self._path = path
        self._folder = os.path.dirname(path)
        try:
            with open(real, encoding="utf-8") as file:
                self._places: dict[str, str] = json.load(file)["weight_map"]
            self._counts = Counter(self._places.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadIndex("no weight_map") from error

    def faults_of(self, shard: str, names: list[str]) -> list[Fault]:
        """Whether the shard holds exactly what the index says. What no index names is somebody else's business."""
        name = os.path.relpath(shard, self._folder or ".")
        count = self._counts[name]
        if count == 0 or count == len(names) == list(map(self._places.get, names)).count(name):
            return []
        named = {tensor for tensor, place in self._places.items() if place == name}
        return [Fault(shard, "tensors", _difference(set(names), named), "the tensors the index names")]

    def strangers(self, paths: set[str]) -> list[Fault]:
        """The files that it names and the manifest does not."""
        named = sorted(os.path.join(self._folder, str(name)) for name in self._counts)
        return [
            Fault(self._path, "index", f"it names {shard}", "only files of the manifest")
            for shard in named
            if shard not in paths
        ]


def _difference(held: set[str], named: set[str]) -> str:
    lacking, extra = sorted(named - held), sorted(held - named)
    parts = []
    if lacking:
        parts.append(f"lacks {lacking[0]}" + (f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""))
    if extra:
        parts.append(f"holds {extra[0]}" + (f" and {len(extra) - 1} more" if len(extra) > 1 else ""))
    return ", ".join(parts)


def summary(files: list[Wanted]) -> dict[str, Any]:
    """Counts for a report."""
    return {"files": len(files), "bytes": sum(file.size_bytes for file in files)}


def leftovers(repository: Repository) -> dict[str, Any]:
    """Files among the blobs that no snapshot needs, with their sizes. `pid`: who is writing a partial one now."""
    partials = repository.partials()
    held = holders([repository.blob(name) for name in partials])
    return {
        "partials": [
            {"name": name, "bytes": _size(repository.blob(name)), "pid": held.get(repository.blob(name))}
            for name in partials
        ],
        "quarantined": [{"name": name, "bytes": _size(repository.blob(name))} for name in repository.quarantined()],
    }


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # it was finished or removed while we looked, or is a link to nowhere


def digest_fault(file: Wanted, digest: str) -> Fault:
    """What a wrong digest of a stamp says: other bytes, or none that the disk would give back."""
    reason = why_unreadable(digest)
    return _unreadable(file.path, reason) if reason is not None else Fault(file.path, "digest", digest, file.digest)


def _unreadable(path: str, found: str) -> Fault:
    return Fault(path, "unreadable", found, "readable bytes")


def bad_paths(files: list[Wanted], found: dict[str, Found], stamps: Stamps) -> set[str]:
    """Files with the right size whose very bytes were hashed before and found wrong."""
    return {
        file.path
        for file in files
        if file.path in found and stamps.digest_of(file, found[file.path]) not in (None, file.digest)
    }
