"""What decides where a node keeps Docker's data and the weights, typed. From `remote/sections/storage.py`; pure."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from k3deploy.domain.command import Question
from k3deploy.domain.journal import Entry, parse
from k3deploy.domain.names import RunId
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.run_folder import RunFolder
from k3deploy.domain.weights import cache_folder, wanted_repositories


def storage_question(profile: Profile, run_id: RunId) -> Question:
    storage = profile.storage
    hub = f"{storage.hf_home}/hub"
    return Question.of(
        "storage",
        mount=storage.mount,
        run_dir=RunFolder(storage.mount, run_id).path,
        hf_home=storage.hf_home,
        weights_mount=profile.weights_mount,
        owned=[storage.hf_home, hub, f"{hub}/.locks", *(f"{hub}/{each}" for each in _model_folders(profile))],
    )


def _model_folders(profile: Profile) -> Iterator[str]:
    """Below the hub's folder: all that a download of the model and its draft writes to."""
    for repo, _ in wanted_repositories(profile.model):
        model = cache_folder(repo)
        yield from (model, f"{model}/blobs", f"{model}/refs", f"{model}/snapshots", f".locks/{model}")


@dataclass(frozen=True)
class FolderFound:
    """`uid` and `mode` are None where there is no such folder."""

    exists: bool
    uid: int | None
    mode: int | None
    is_on_mount: bool


@dataclass(frozen=True)
class NotOurs:
    """A folder of the cache that belongs to another user than the one who logs in."""

    path: str
    owner: str


@dataclass(frozen=True)
class StorageAnswer:
    """`daemon_json` is the file's bytes, None for no file; `root_flag` is the running daemon's --data-root, if any."""

    run_dir: FolderFound
    hf_home: FolderFound
    not_ours: tuple[NotOurs, ...]
    daemon_json_path: str
    daemon_json: bytes | None
    daemon_json_sha256: str | None
    root_flag: str | None
    has_unit: bool
    unit_files: tuple[str, ...]
    journal: tuple[Entry, ...]

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "StorageAnswer":
        """From the section's answer. Raises KeyError or TypeError for an answer of another shape: a fault of ours."""
        config = body["daemon_json"]
        text = config["text_base64"]
        return StorageAnswer(
            run_dir=FolderFound(**body["run_dir"]),
            hf_home=FolderFound(**body["hf_home"]),
            not_ours=tuple(NotOurs(**row) for row in body["not_ours"]),
            daemon_json_path=config["path"],
            daemon_json=None if text is None else base64.b64decode(text),
            daemon_json_sha256=config["sha256"],
            root_flag=body["root_flag"],
            has_unit=body["has_unit"],
            unit_files=tuple(body["unit_files"]),
            journal=parse(body["journal"]),
        )
