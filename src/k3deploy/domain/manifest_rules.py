"""What a list of files must be to be believed: its words become names of files and folders on every node. Pure."""

import re

from k3deploy.domain.weights import Manifest, ManifestFile

RULES = (
    "a repository is OWNER/NAME and a commit 40 hex digits; a path stays inside the repository, and each is listed "
    "once; a size is a number of bytes; sha256 is 64 hex digits, a git blob id 40"
)
_REPO = re.compile(r"[0-9A-Za-z_.-]+(/[0-9A-Za-z_.-]+)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HEX40 = re.compile(r"[0-9a-f]{40}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NAME_MOST_BYTES = 255  # of one part of a path, on every file system of Linux that is in use
_SIZE_MOST_BYTES = (1 << 63) - 1


def what_is_wrong(manifest: Manifest) -> str | None:
    """The first word that breaks one of `RULES`, for people; None for a list that can be used.

    The values come from outside, so nothing is taken for granted of their types.
    """
    if not (_is(_REPO, manifest.repo) and _stays_inside(manifest.repo)):
        return f"the repository {manifest.repo!r}"
    if not is_commit(manifest.commit):
        return f"the commit {manifest.commit!r}"
    seen = set()
    for file in manifest.files:
        if (wrong := _wrong_of(file)) is not None:
            return f"{wrong} of {file.path!r}"
        if file.path in seen:
            return f"the second entry of {file.path!r}"
        seen.add(file.path)
    return None


def is_commit(text: object) -> bool:
    """Whether it can be the name of a commit."""
    return _is(_HEX40, text)


def _wrong_of(file: ManifestFile) -> str | None:
    path: object = file.path
    if not isinstance(path, str) or _UNPRINTABLE.search(path) or not _stays_inside(path):
        return "the path"
    if type(file.size_bytes) is not int or not 0 <= file.size_bytes <= _SIZE_MOST_BYTES:
        return f"the size {file.size_bytes!r}"
    if not _is(_HEX40, file.git_blob_id):
        return f"the git blob id {file.git_blob_id!r}"
    if file.sha256 is not None and not _is(_SHA256, file.sha256):
        return f"the sha256 {file.sha256!r}"
    return None


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _stays_inside(path: str) -> bool:
    return all(part not in ("", ".", "..") and len(part.encode()) <= _NAME_MOST_BYTES for part in path.split("/"))
