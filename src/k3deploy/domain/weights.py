"""The manifest: every file of a model repository at one commit, with size and digest. Pure comparison, no I/O."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.domain.errors import ProfileError
from k3deploy.domain.names import Commit, Sha256
from k3deploy.domain.profile.models import Model

_CACHE_FOLDER = "models--"


@dataclass(frozen=True)
class ManifestFile:
    """`sha256` for large (LFS/Xet) files; small files have only a git blob id: sha1 of "blob <size>\\0" + content."""

    path: str
    size_bytes: int
    sha256: Sha256 | None
    git_blob_id: str

    @property
    def is_shard(self) -> bool:
        return self.path.endswith(".safetensors")


@dataclass(frozen=True)
class Manifest:
    repo: str
    commit: Commit
    files: tuple[ManifestFile, ...]

    @property
    def shards(self) -> tuple[ManifestFile, ...]:
        return tuple(f for f in self.files if f.is_shard)

    @property
    def shard_bytes(self) -> int:
        return sum(f.size_bytes for f in self.shards)

    @property
    def total_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files)

    def as_dict(self) -> dict[str, Any]:
        """JSON shape, also what the node programs take."""
        return {
            "repo": self.repo,
            "commit": self.commit,
            "files": [
                {"path": f.path, "size": f.size_bytes, "sha256": f.sha256, "blob_id": f.git_blob_id} for f in self.files
            ],
        }

    @staticmethod
    def from_dict(body: Mapping[str, Any]) -> "Manifest":
        files = tuple(
            ManifestFile(f["path"], f["size"], Sha256(f["sha256"]) if f["sha256"] else None, f["blob_id"])
            for f in body["files"]
        )
        return Manifest(body["repo"], Commit(body["commit"]), files)

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> Sha256:
        """One value that two nodes, or two runs, can compare."""
        return Sha256(hashlib.sha256(self.to_json().encode()).hexdigest())


def check_manifests(manifests: Sequence[Manifest], model: Model) -> None:
    """Raise ProfileError unless these are what the profile expects: repositories, commits, number of shards, bytes."""
    head, *drafts = manifests
    wanted = [
        ("model.repo", head.repo, model.repo),
        ("model.revision", head.commit, model.revision),
        ("model.shards", len(head.shards), model.shards),
        ("model.shard_bytes", head.shard_bytes, model.shard_bytes),
        ("model.draft", [draft.repo for draft in drafts], [model.draft.repo] if model.draft else []),
    ]
    if model.draft and drafts:
        wanted += [
            ("model.draft.revision", drafts[0].commit, model.draft.revision),
            ("model.draft.shard_bytes", drafts[0].shard_bytes, model.draft.shard_bytes),
        ]
    for field, found, expected in wanted:
        if found != expected:
            raise ProfileError(
                what=f"{model.repo} is not what the profile says: {field}",
                why="the Hub's list of files decides what is fetched and proved, so both must agree before a byte is",
                fix=f"correct {field} in the profile, or name the revision that it was written for",
                context={"found": found, "wanted": expected, "revision": model.revision},
            )


def wanted_repositories(model: Model) -> tuple[tuple[str, str], ...]:
    """Repository and commit of the model and, where it has one, of its draft."""
    draft = ((model.draft.repo, model.draft.revision),) if model.draft else ()
    return ((model.repo, model.revision), *draft)


def cache_folder(repo: str) -> str:
    """Folder of a model under <HF_HOME>/hub, as every Hugging Face client names it."""
    return _CACHE_FOLDER + repo.replace("/", "--")


def repo_of(folder: str) -> str | None:
    """The model that a folder of this name holds; None for another kind of folder."""
    return folder.removeprefix(_CACHE_FOLDER).replace("--", "/") if folder.startswith(_CACHE_FOLDER) else None
