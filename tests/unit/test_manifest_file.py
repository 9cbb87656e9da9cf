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
    [
        {"path": "../x"},
        {"path": "/etc/passwd"},
        {"path": ""},
        {"path": 5},
        {"path": "a\0b"},
        {"path": "a\n\x1b[31mb"},
        {"path": "\ud800"},
        {"path": "x" * 256},
        {"sha256": "../../x"},
        {"sha256": 5},
        {"blob_id": "z"},
        {"blob_id": None},
        {"size": -1},
        {"size": 1.5},
        {"size": True},
        {"size": float("inf")},
        {"size": 1 << 63},
    ],
)
def test_a_file_that_no_repository_can_have_is_refused(change: dict[str, Any]) -> None:
    file = {"path": "x", "size": 1, "sha256": "a" * 64, "blob_id": "b" * 40}
    body = {"repo": "lab/model", "commit": COMMIT, "files": [{**file, **change}]}
    with pytest.raises(ProfileError, match="lists what no repository can have"):
        parse_manifest(body, "m.json", repo=None, commit=None)


@pytest.mark.parametrize(
    "change",
    [
        {"repo": "../model"},
        {"repo": "/lab/model"},
        {"repo": 7},
        {"commit": "../../x"},
        {"commit": "/tmp/x"},
        {"commit": 7},
    ],
)
def test_a_name_that_would_lead_out_of_the_cache_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProfileError, match="lists what no repository can have"):
        parse_manifest({**MANIFEST.as_dict(), **change}, "m.json", repo=None, commit=None)


def test_a_path_is_listed_once() -> None:
    body = MANIFEST.as_dict()
    with pytest.raises(ProfileError, match=r"the second entry of 'config\.json'"):
        parse_manifest(
            {**body, "files": [*body["files"], {**body["files"][0], "size": 1}]}, "m.json", repo="", commit=""
        )
