"""Read and write nodes.yaml."""

import json
from collections.abc import Mapping
from pathlib import Path

from k3deploy.adapters import text_files
from k3deploy.domain import nodes_file, yaml_text
from k3deploy.domain.errors import ProfileError
from k3deploy.domain.nodes_file import NodesFile
from k3deploy.domain.yaml_text import Document


def load_nodes(path: Path) -> NodesFile:
    """Raises ProfileError when there is none (with the command that writes one), ProfileFaults when it is wrong."""
    if not path.exists():
        raise ProfileError(
            what=f"there is no nodes file {path}",
            why="it says which machines to use",
            fix="write it with: k3deploy init ADDRESS... (one address for each machine)",
            context={"folder": path.parent.absolute()},
        )
    document = yaml_text.read(text_files.read(path, limit_bytes=yaml_text.MAX_BYTES), str(path))
    return nodes_file.load(document)


def nodes_to_lock(nodes: NodesFile) -> Mapping[str, object]:
    """The nodes file as it goes into the store, JSON-ready."""
    return nodes.model_dump(mode="json", exclude_none=True)


def nodes_from_lock(data: bytes) -> NodesFile:
    """Read what `nodes_to_lock` gave. Raises ProfileError or ProfileFaults when somebody changed it."""
    try:
        content = json.loads(data)
    except ValueError as err:
        raise _damaged(str(err)) from err
    if not isinstance(content, dict):
        raise _damaged(f"it holds a {type(content).__name__}, not keys and values")
    return nodes_file.load(Document("the run's nodes", content))


def save(path: Path, text: str, *, may_replace: bool) -> None:
    """Write it whole or not at all. Raises ProfileError when there is one and `may_replace` is not given."""
    if path.exists() and not may_replace:
        raise ProfileError(
            what=f"{path} exists already",
            why="it may hold host keys that you have checked",
            fix="edit it, or replace it with --force",
        )
    text_files.write(path, text)


def _damaged(why: str) -> ProfileError:
    return ProfileError(
        what="the run's nodes.lock.json in the store is damaged",
        why=why,
        fix="run this in the folder of the nodes.yaml that names the run's machines: it is used instead",
    )
