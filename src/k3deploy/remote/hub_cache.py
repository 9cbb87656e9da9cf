"""Where the Hugging Face cache keeps a repository's files, and what can be told of one file without reading it.

Layout of huggingface_hub 2.x, below <HF_HOME>/hub/models--<owner>--<name>:
  snapshots/<commit>/<path> -> ../../blobs/<name>   the name is the Hub's digest of the content
  blobs/<name>                                      the bytes, or a link into the store that repositories share
  blobs/<name>.<8 hex>.incomplete                   a download in flight, or what a killed one left
  refs/<branch>                                     the commit that a launch by name takes
  .k3deploy/<commit>.json                           ours: what was proved of which bytes (see stamps)
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

INCOMPLETE = ".incomplete"
BAD = ".bad"  # ours: a blob that was moved aside because its content is wrong


class Wanted(NamedTuple):
    """One file of the manifest. `digest` names its blob: sha256 for large files, git blob id for small ones."""

    path: str
    size_bytes: int
    digest: str
    is_sha256: bool

    @property
    def is_shard(self) -> bool:
        return self.path.endswith(".safetensors")

    def hasher(self) -> "hashlib._Hash":
        """Computes `digest` from the content."""
        if self.is_sha256:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.size_bytes, usedforsecurity=False)


class Found(NamedTuple):
    """A file that is there with the right size: where its bytes are, and what `stat` says of them."""

    real: str
    stat: os.stat_result


class Fault(NamedTuple):
    """One thing wrong with one file, as data: `kind` is for programs, found / wanted are for people."""

    path: str
    kind: str
    found: str
    wanted: str

    def as_dict(self) -> dict[str, str]:
        return self._asdict()


def wanted_files(manifest: dict[str, Any]) -> list[Wanted]:
    """The files of a manifest in its JSON shape."""
    return [
        Wanted(f["path"], int(f["size"]), f["sha256"] or f["blob_id"], bool(f["sha256"])) for f in manifest["files"]
    ]


def manifest_digest(manifest: dict[str, Any]) -> str:
    """One value by which nodes tell that they speak of the same files; equals the operator's `Manifest.digest`."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Repository:
    """One repository in the cache of one HF_HOME, at one commit."""

    def __init__(self, hf_home: str, repo: str, commit: str) -> None:
        hub = os.path.join(os.path.realpath(hf_home), "hub")
        self.lay_out(os.path.join(hub, "models--" + repo.replace("/", "--")), commit)

    @classmethod
    def at(cls, folder: str, commit: str) -> "Repository":
        """The repository kept in this folder, whatever its name and that of the cache above it."""
        made = cls.__new__(cls)
        made.lay_out(os.path.realpath(folder), commit)
        return made

    def lay_out(self, folder: str, commit: str) -> None:
        """Say where everything lies."""
        self.hub = os.path.dirname(folder)
        self.folder = folder
        self.blobs = os.path.join(self.folder, "blobs")
        self.snapshots = os.path.join(self.folder, "snapshots")
        self.snapshot = os.path.join(self.snapshots, commit)
        self.main_ref = os.path.join(self.folder, "refs", "main")
        # Beside the weights, so that they stay and go together: with the run, with --purge-weights, with the disk.
        self.stamps = os.path.join(self.folder, ".k3deploy", f"{commit}.json")
        self.commit = commit

    def link(self, path: str) -> str:
        """The file's place in the snapshot. Raises ValueError for a path that would leave it."""
        parts = path.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"not a path inside a repository: {path!r}")
        return os.path.join(self.snapshot, *parts)

    def blob(self, digest: str) -> str:
        return os.path.join(self.blobs, digest)

    def look_at(self, file: Wanted) -> "Found | Fault":
        """What `stat` can tell: the link is there, names the right blob, stays in the cache, and the size is right."""
        link = self.link(file.path)
        try:
            is_link = stat.S_ISLNK(os.lstat(link).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return Fault(file.path, "missing", "nothing", "a link to its blob")
        except OSError as error:
            return closed(file, error)
        if is_link:
            named = os.path.basename(os.readlink(link))
            if named != file.digest:
                return Fault(file.path, "wrong-link", f"a link to {named}", f"a link to {file.digest}")
        real = os.path.realpath(link)
        if not real.startswith(self.hub + os.sep):
            return Fault(file.path, "outside", f"a link to {real}", f"a file below {self.hub}")
        try:
            status = os.stat(real)
        except (FileNotFoundError, NotADirectoryError):
            return Fault(file.path, "dangling", "a link to nothing", "a link to its blob")
        except OSError as error:
            return closed(file, error)
        if not stat.S_ISREG(status.st_mode):
            return Fault(file.path, "not-a-file", "something else", "a file")
        if status.st_size != file.size_bytes:
            return Fault(file.path, "size", f"{status.st_size} bytes", f"{file.size_bytes} bytes")
        return Found(real, status)

    def partials(self) -> list[str]:
        """Names of the unfinished downloads among the blobs."""
        return [name for name in self._blob_names() if name.endswith(INCOMPLETE)]

    def quarantined(self) -> list[str]:
        """Names of the blobs that were moved aside."""
        return [name for name in self._blob_names() if name.endswith(BAD)]

    def other_commits(self) -> list[str]:
        """Snapshots of other commits, which cost space and nothing else."""
        return sorted(name for name in _names(self.snapshots) if name != self.commit)

    def main_commit(self) -> str | None:
        """What a launch by name would take, or None where no such reference can be read."""
        try:
            with open(self.main_ref, encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return None

    def _blob_names(self) -> list[str]:
        return sorted(_names(self.blobs))


def closed(file: Wanted, error: OSError) -> Fault:
    """A file of which `stat` says nothing: links in a circle, a folder of another user's, a disk that fails."""
    return Fault(file.path, "unreadable", error.strerror or str(error), "readable bytes")


def move_aside(place: str, stem: str) -> None:
    """Keep what lies there under <stem>.bad. An earlier bad file gives way; a folder never does, as it may be yours."""
    bad, number = stem + BAD, 1
    while os.path.isdir(bad) or (os.path.isdir(place) and os.path.lexists(bad)):
        number += 1
        bad = f"{stem}.{number}{BAD}"
    os.makedirs(os.path.dirname(bad), exist_ok=True)
    os.replace(place, bad)


def holders(paths: list[str]) -> dict[str, int]:
    """Which of the files some process has open, with its number. Sees all processes as root, else only our own."""
    wanted = {os.path.realpath(path): path for path in paths}
    held: dict[str, int] = {}
    for pid, target in _open_files() if wanted else ():
        if target in wanted:
            held[wanted[target]] = pid
    return held


def _open_files() -> Iterator[tuple[int, str]]:
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        folder = f"/proc/{pid}/fd"
        try:
            for descriptor in os.listdir(folder):
                yield int(pid), os.readlink(os.path.join(folder, descriptor))
        except OSError:
            continue  # it ended while we looked, or it is not ours to look into


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # absent, no folder, or closed to us: then each wanted file below it says so
        return []
