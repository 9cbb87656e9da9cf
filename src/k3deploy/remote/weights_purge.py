"""Remove models from the Hugging Face cache, and the rest of the cache where the run made it for nothing else.

Idempotent: what is gone is not an error. Links are removed, never followed.
"""

import contextlib
import os
import shutil
from typing import Any

from k3deploy.remote.journal import Journal
from k3deploy.remote.protocol import Refusal, Say
from k3deploy.remote.sections.holdings import disk_bytes

# What the client (2.4) and the engine's remote-code loader leave in a cache besides the models.
_CLIENT_FILES = ("hub/CACHEDIR.TAG", "hub/version.txt", "hub/.locks", "hub", "CACHEDIR.TAG", "xet", "modules")


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: hf_home, models (folder names, models--org--name), folder (of the run).

    Returns {"freed_bytes", "removed"}.

    Raises Refusal when a model's folder is a link: it then lies on a disk that is not ours to clean.
    """
    hf_home = args["hf_home"]
    folders = [_model_folder(hf_home, model) for model in args["models"]]
    freed = sum(disk_bytes(folder) or 0 for folder in folders)
    locks = [os.path.join(hf_home, "hub", ".locks", model) for model in args["models"]]
    removed = [path for path in (*folders, *locks) if _remove_tree(path)]
    made = {entry["path"] for entry in Journal(args["folder"]).entries() if entry["kind"] == "folder"}
    if hf_home in made and not _other_models(hf_home):
        removed += [path for name in _CLIENT_FILES if _remove_leftover(path := os.path.join(hf_home, name))]
    return {"freed_bytes": freed, "removed": removed}


def _model_folder(hf_home: str, model: str) -> str:
    if "/" in model or not model.startswith("models--"):
        raise ValueError(f"not a model's cache folder: {model!r}")
    folder = os.path.join(hf_home, "hub", model)
    if os.path.islink(folder):
        raise Refusal(
            f"{folder} is a link to {os.path.realpath(folder)}",
            why="the weights lie outside of this node's cache, perhaps for others too",
            fix="remove them yourself if they may go, then the link",
            path=folder,
        )
    return folder


def _other_models(hf_home: str) -> list[str]:
    try:
        names = os.listdir(os.path.join(hf_home, "hub"))
    except FileNotFoundError:
        return []
    return [name for name in names if name.partition("--")[0] in ("models", "datasets", "spaces")]


def _remove_tree(path: str) -> bool:
    if not os.path.isdir(path) or os.path.islink(path):
        return False
    # Another node may be removing it at the same time, where they share the volume.
    shutil.rmtree(path, onerror=_still_there)
    return True


def _still_there(_function: object, _path: str, error: Any) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def _remove_leftover(path: str) -> bool:
    """A file or a folder that the client made for itself; the hub folder itself only when it is empty by now."""
    if os.path.basename(path) == "hub":
        with contextlib.suppress(OSError):
            os.rmdir(path)
            return True
        return False
    if os.path.isfile(path) and not os.path.islink(path):
        os.unlink(path)
        return True
    return _remove_tree(path)
