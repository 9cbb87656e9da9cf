"""Everything that can be told about a repository's files without hashing them: presence, sizes, headers, index."""

import json
import os
from typing import Any

from k3deploy.remote.hub_cache import Fault, Found, Repository, Wanted, holders
from k3deploy.remote.safetensors_header import BadHeader, tensor_names
from k3deploy.remote.stamps import Stamps

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


def structure_faults(files: list[Wanted], found: dict[str, Found]) -> list[Fault]:
    """Read each shard's header and the index, and compare: every tensor is where the index says, and nowhere else.

    Before SGLang pull request 32279 (July 2026) a shard that the index names and the folder lacks was skipped without
    a word, and its weights stayed uninitialised: so the index must name only files of the manifest.
    """
    faults: list[Fault] = []
    tensors: dict[str, set[str]] = {}
    for file in files:
        if file.is_shard and file.path in found:
            try:
                tensors[file.path] = tensor_names(found[file.path].real, file.size_bytes)
            except (BadHeader, OSError) as error:
                faults.append(Fault(file.path, "header", str(error), "a header that accounts for every byte"))
    paths = {file.path for file in files}
    for file in files:
        if file.path.endswith(_INDEX) and file.path in found:
            faults += _index_faults(file, found[file.path].real, paths, tensors)
    return faults


def _index_faults(index: Wanted, real: str, paths: set[str], tensors: dict[str, set[str]]) -> list[Fault]:
    try:
        with open(real, encoding="utf-8") as file:
            places: dict[str, str] = json.load(file)["weight_map"]
    except OSError as error:
        return [Fault(index.path, "index", str(error), "readable bytes")]
    except (ValueError, KeyError, TypeError):
        return [Fault(index.path, "index", "no weight_map", "JSON with a weight_map")]
    folder = os.path.dirname(index.path)
    by_shard: dict[str, set[str]] = {}
    for tensor, name in places.items():
        by_shard.setdefault(os.path.join(folder, name), set()).add(tensor)
    faults = []
    for shard, named in sorted(by_shard.items()):
        if shard not in paths:
            faults.append(Fault(index.path, "index", f"it names {shard}", "only files of the manifest"))
        elif shard in tensors and tensors[shard] != named:
            faults.append(Fault(shard, "tensors", _difference(tensors[shard], named), "the tensors the index names"))
    return faults


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
    return {
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
        "shards": sum(1 for file in files if file.is_shard),
        "shard_bytes": sum(file.size_bytes for file in files if file.is_shard),
    }


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
    except FileNotFoundError:
        return 0  # it was finished or removed while we looked


def bad_paths(files: list[Wanted], found: dict[str, Found], stamps: Stamps) -> set[str]:
    """Files with the right size whose very bytes were hashed before and found wrong."""
    return {
        file.path
        for file in files
        if file.path in found and stamps.digest_of(file, found[file.path]) not in (None, file.digest)
    }
