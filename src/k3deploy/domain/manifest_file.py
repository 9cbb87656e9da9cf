"""A list of files as a file holds it, in any of the forms that people have at hand. Pure."""

from collections.abc import Mapping
from typing import Any

from k3deploy.domain.errors import ProfileError
from k3deploy.domain.manifest_rules import RULES, what_is_wrong
from k3deploy.domain.names import Commit, Sha256
from k3deploy.domain.weights import Manifest, ManifestFile

_FORMS = "ours (`repo`, `commit`, `files`), the Hub's answer (`id`, `sha`, `siblings`) or a cache's trees/COMMIT.json"


def parse_manifest(body: Any, name: str, *, repo: str | None, commit: str | None) -> Manifest:
    """`repo` and `commit` are for the form that lacks them, a cache's trees/<commit>.json.

    Raises ProfileError for a body in none of the forms, and for one without sizes or digests.
    """
    try:
        if "siblings" in body:
            found = Manifest(body["id"], Commit(body["sha"]), tuple(_sibling(each) for each in body["siblings"]))
        elif "format_version" in body:
            found = Manifest(repo or "", Commit(commit or ""), tuple(map(_entry, *_columns(body["files"]))))
        else:
            found = Manifest.from_dict(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProfileError(
            what=f"{name} is no list of a model's files with sizes and digests",
            why=f"{type(error).__name__}: {error}; it can be {_FORMS}",
            fix="get one: curl 'https://huggingface.co/api/models/REPO/revision/COMMIT?blobs=true' > FILE",
            context={"path": name},
        ) from error
    if not (found.repo and found.commit and found.files):
        raise ProfileError(
            what=f"{name} does not say which repository and commit it lists",
            why="a cache's trees/COMMIT.json says the commit by its own name, and the repository by that of its folder",
            fix="name the profile too (--profile), or take the Hub's answer: "
            "curl 'https://huggingface.co/api/models/REPO/revision/COMMIT?blobs=true' > FILE",
            context={"path": name},
        )
    if (wrong := what_is_wrong(found)) is not None:
        raise ProfileError(
            what=f"{name} lists what no repository can have: {wrong}",
            why=RULES,
            fix="get the list anew from the Hub",
            context={"path": name},
        )
    return Manifest(found.repo, found.commit, tuple(sorted(found.files, key=lambda file: file.path)))


def _columns(files: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[Mapping[str, Any]]]:
    return list(files), list(files.values())


def _entry(path: str, entry: Mapping[str, Any]) -> ManifestFile:
    sha256 = entry.get("lfs_sha256")
    size = entry["lfs_size"] if sha256 else entry["size"]
    return ManifestFile(path, size, Sha256(sha256) if sha256 else None, entry["blob_id"])


def _sibling(body: Mapping[str, Any]) -> ManifestFile:
    sha256 = (body.get("lfs") or {}).get("sha256")
    return ManifestFile(body["rfilename"], body["size"], Sha256(sha256) if sha256 else None, body["blobId"])
