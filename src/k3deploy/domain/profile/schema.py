"""What keys the models know, asked from the models themselves: for "did you mean", and for what belongs elsewhere."""

import difflib
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from k3deploy.domain.faults import Path, path_text

# How other tools and older notes call what has a place of its own here.
_OTHER_WORDS = {
    "tp": "pools[0].replicas.parallel.tensor",
    "tp_size": "pools[0].replicas.parallel.tensor",
    "pp": "pools[0].replicas.parallel.pipeline",
    "ep": "pools[0].replicas.parallel.expert",
    "dp": "pools[0].replicas.count",
    "dcp": "pools[0].replicas.parallel.decode_context",
    "nodes": "pools[0].replicas.nodes_each",
    "gpus": "hardware.gpus_per_node",
    "tag": "engine.image",
    "port": "network.api_port",
    "nvme": "storage.mount",
    "engine_args": "engine.flags",
    "args": "engine.flags",
}


def model_at(root: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model whose keys stand at a path, or None where free keys or scalars stand."""
    found: type[BaseModel] | None = root
    for step in path:
        if isinstance(step, int):
            continue
        found = next((_model_of(kind) for name, kind in _fields(found) if name == step), None) if found else None
    return found


def keys(model: type[BaseModel]) -> list[str]:
    return [name for name, _ in _fields(model)]


def suggestion(root: type[BaseModel], path: Path) -> str:
    """What to write instead of the unknown key at the end of a path."""
    key = str(path[-1])
    here = model_at(root, path[:-1])
    known = keys(here) if here else []
    if near := difflib.get_close_matches(key.replace("-", "_").lower(), known, n=1, cutoff=0.7):
        return f"did you mean `{near[0]}`?"
    elsewhere = [place for place in _places(root, ()) if place[-1] == key]
    if elsewhere:
        return f"did you mean `{path_text(elsewhere[0])}`? It has its place there"
    word = _OTHER_WORDS.get(key.replace("-", "_").lower())
    if word and _has(root, word):
        return f"did you mean `{word}`? It has its place there"
    return f"remove it; the keys here are: {', '.join(known)}"


def _has(root: type[BaseModel], word: str) -> bool:
    return word.partition(".")[0].partition("[")[0] in keys(root)


def _places(model: type[BaseModel], path: Path) -> Iterator[Path]:
    for name, kind in _fields(model):
        here: Path = (*path, name)
        yield here
        if (inner := _model_of(kind)) is not None:
            yield from _places(inner, (*here, 0) if _is_list(kind) else here)


def _fields(model: type[BaseModel]) -> list[tuple[str, Any]]:
    return [(field.alias or name, field.annotation) for name, field in model.model_fields.items()]


def _model_of(kind: Any) -> type[BaseModel] | None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if get_origin(kind) in (Annotated, Union, types.UnionType, tuple):
        return next((found for part in get_args(kind) if (found := _model_of(part)) is not None), None)
    return None


def _is_list(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        return _is_list(get_args(kind)[0])
    return get_origin(kind) is tuple
