"""A list of files is read in each form that people have at hand, and nothing else is taken for one."""

from typing import Any

import pytest

from k3deploy.domain.errors import ProfileError
from k3deploy.domain.manifest_file import parse_manifest
from k3deploy.domain.names import Commit, Sha256
from k3deploy.domain.weights import Manifest, ManifestFile

COMMIT = "9" * 40
LARGE = ManifestFile("model.safetensors", 1234, Sha256("a" * 64), "b" * 40)
SMALL = ManifestFile("config.json", 519, None, "c" * 40)
MANIFEST = Manifest("lab/model", Commit(COMMIT), (SMALL, LARGE))

HUB = {
    "id": "lab/model",
    "sha": COMMIT,
    "siblings": [
        {
            "rfilename": "model.safetensors",
            "size": 1234,
            "blobId": "b" * 40,
            "lfs": {"sha256": "a" * 64, "size": 1234, "pointerSize": 134},
        },
        {"rfilename": "config.json", "size": 519, "blobId": "c" * 40},
    ],
}
# huggingface_hub 1.22 and later; the file's name is the commit.
TREE = {
    "format_version": 1,
    "files": {
        "model.safetensors": {
            "size": 134,
            "blob_id": "b" * 40,
            "lfs_sha256": "a" * 64,
            "lfs_size": 1234,
            "xet_hash": "d" * 64,
        },
        "config.json": {"size": 519, "blob_id": "c" * 40},
    },
}


@pytest.mark.parametrize("body", [MANIFEST.as_dict(), HUB, TREE], ids=["ours", "hub", "tree"])
def test_every_form_says_the_same(body: Any) -> None:
    assert parse_manifest(body, "m.json", repo="lab/model", commit=COMMIT) == MANIFEST


def test_what_a_file_says_itself_is_not_replaced() -> None:
    assert parse_manifest(HUB, "m.json", repo="other/model", commit="0" * 40) == MANIFEST


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        "text",
        {"id": "lab/model", "sha": COMMIT, "siblings": [{"rfilename": "config.json"}]},  # without ?blobs=true
        {"format_version": 1, "files": {"x": {}}},
        {"repo": "lab/model", "commit": COMMIT, "files": 5},
    ],
)
def test_what_is_no_list_is_refused(body: Any) -> None:
    with pytest.raises(ProfileError, match=r"m\.json is no list of a model's files") as caught:
        parse_manifest(body, "m.json", repo="lab/model", commit=COMMIT)
    assert "?blobs=true" in caught.value.fix


@pytest.mark.parametrize(("repo", "commit"), [(None, COMMIT), ("lab/model", None)])
def test_a_tree_alone_does_not_say_whose_it_is(repo: str | None, commit: str | None) -> None:
    with pytest.raises(ProfileError, match="does not say which repository and commit"):
        parse_manifest(TREE, "m.json", repo=repo, commit=commit)


@pytest.mark.parametrize(
    "change",
    [{"path": "../x"}, {"path": "/etc/passwd"}, {"path": ""}, {"sha256": "../../x"}, {"blob_id": "z"}],
)
def test_what_would_lead_out_of_the_folder_is_refused(change: dict[str, str]) -> None:
    file = {"path": "x", "size": 1, "sha256": "a" * 64, "blob_id": "b" * 40}
    body = {"repo": "lab/model", "commit": COMMIT, "files": [{**file, **change}]}
    with pytest.raises(ProfileError, match="lists a file that no repository can have"):
        parse_manifest(body, "m.json", repo=None, commit=None)
