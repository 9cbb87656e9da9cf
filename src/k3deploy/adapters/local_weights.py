"""Weights in a folder of this machine: in which of the layouts they lie, of which repository and commit."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from k3deploy.domain.errors import ProfileError
from k3deploy.domain.manifest_file import parse_manifest
from k3deploy.domain.manifest_rules import is_commit
from k3deploy.domain.weights import Manifest, cache_folder, repo_of

Layout = Literal["home", "repository", "snapshot", "plain"]
# What the Hub's client keeps in a folder of plain files.
_CLIENT = Path(".cache", "huggingface")


@dataclass(frozen=True)
class LocalWeights:
    """`folder`: of the repository in a cache, or of the plain files. None: the folder does not say."""

    layout: Layout
    folder: Path
    repo: str | None
    commit: str | None

    @property
    def is_plain(self) -> bool:
        return self.layout == "plain"

    @property
    def program_args(self) -> Mapping[str, str]:
        """Where programs of `remote/` look for the files."""
        return {"plain" if self.is_plain else "folder": str(self.folder)}

    def tree(self, commit: str) -> Path:
        """The list of files that the Hub's client left at its last download (huggingface_hub 1.22 and later)."""
        return (self.folder / _CLIENT if self.is_plain else self.folder) / "trees" / f"{commit}.json"


def find_weights(path: Path, repo: str | None = None) -> LocalWeights:
    """`path`: a Hugging Face home or its hub folder, a models--... folder, a snapshot, or a folder of plain files.

    `repo` chooses where a home holds several. Raises ProfileError when nothing can be there, or too much is.
    """
    try:
        return _found(path, repo)
    except (OSError, RuntimeError) as err:  # RuntimeError: links in a circle, a home folder of nobody
        raise ProfileError(
            what=f"cannot look into {path}",
            why=str(err),
            fix="correct the path, or run it as the user who owns that folder",
        ) from err


def _found(path: Path, repo: str | None) -> LocalWeights:
    place = path.expanduser().resolve()
    if not place.is_dir():
        raise ProfileError(
            what=f"there is no folder {path}",
            fix="name a Hugging Face home, a models--... folder of it, a snapshot, or a folder with the files",
        )
    if (place / "snapshots").is_dir() or repo_of(place.name):
        return _repository("repository", place, None)
    if place.parent.name == "snapshots":
        return _repository("snapshot", place.parent.parent, place.name)
    for hub in (place / "hub", place):
        if found := sorted(each for each in hub.glob("*") if repo_of(each.name) and each.is_dir()):
            return _repository("home", _chosen(found, repo, path), None)
    return LocalWeights("plain", place, repo, _plain_commit(place))


def read_manifest(path: Path, repo: str | None = None) -> Manifest:
    """A list of files from a file, in any form of `manifest_file`. Raises ProfileError.

    The client's trees/<commit>.json names its commit itself; `repo` is for one that lies outside of models--...
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        raise ProfileError(
            what=f"cannot read {path}", why=str(err), fix="name a list of files as JSON (--manifest FILE)"
        ) from err
    return parse_manifest(body, str(path), repo=repo_of(path.resolve().parent.parent.name) or repo, commit=path.stem)


def _repository(layout: Layout, folder: Path, commit: str | None) -> LocalWeights:
    return LocalWeights(layout, folder, repo_of(folder.name), commit or _main_commit(folder) or _only_commit(folder))


def _chosen(found: list[Path], repo: str | None, path: Path) -> Path:
    if repo is not None:
        return found[0].parent / cache_folder(repo)
    if len(found) == 1:
        return found[0]
    raise ProfileError(
        what=f"{path} holds {len(found)} repositories",
        fix=f"name one of them: --local {found[0]}",
        context={"found": ", ".join(each.name for each in found)},
    )


def _main_commit(folder: Path) -> str | None:
    try:
        commit = (folder / "refs" / "main").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return commit if is_commit(commit) else None


def _only_commit(folder: Path) -> str | None:
    snapshots = folder / "snapshots"
    names = [each.name for each in snapshots.iterdir()] if snapshots.is_dir() else []
    return names[0] if len(names) == 1 else None


def _plain_commit(folder: Path) -> str | None:
    """The commit that the Hub's client noted beside every file; None where it was not the client, or not one commit."""
    commits = set()
    for note in (folder / _CLIENT / "download").rglob("*.metadata"):
        with contextlib.suppress(OSError):
            commits.add(note.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip())
    return commits.pop() if len(commits) == 1 else None
