"""A repository's files as plain files of a folder, as `hf download --local-dir`, rsync or a copy leave them.

What the Hub's client left unfinished lies in .cache/huggingface/download, what is ours beside it: the folder that the
client itself looks past.
"""

import os
import stat

from k3deploy.remote.hub_cache import BAD, INCOMPLETE, Fault, Found, Repository, Wanted, closed, move_aside

_DOWNLOADS = os.path.join(".cache", "huggingface", "download")
_OURS = os.path.join(".cache", "huggingface", "k3deploy")


class PlainFolder(Repository):
    """`blob(name)`: of the leftovers, by their path in the folder. It has no references and no other commits."""

    def __init__(self, folder: str, commit: str) -> None:
        self.lay_out(os.path.realpath(folder), commit)
        self.snapshot = self.folder
        self.blobs = self.folder
        self.hub = self.folder
        self.stamps = os.path.join(self.folder, _OURS, f"{commit}.json")

    def look_at(self, file: Wanted) -> Found | Fault:
        """What `stat` can tell: the file is there, and its size is right. A link may lead to another disk."""
        path = self.link(file.path)
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            kind, found = ("dangling", "a link to nothing") if os.path.islink(path) else ("missing", "nothing")
            return Fault(file.path, kind, found, "the file")
        except OSError as error:
            return closed(file, error)
        if not stat.S_ISREG(status.st_mode):
            return Fault(file.path, "not-a-file", "something else", "a file")
        if status.st_size != file.size_bytes:
            return Fault(file.path, "size", f"{status.st_size} bytes", f"{file.size_bytes} bytes")
        return Found(os.path.realpath(path), status)

    def partials(self) -> list[str]:
        return self._below(_DOWNLOADS, INCOMPLETE)

    def quarantined(self) -> list[str]:
        return self._below(_OURS, BAD)

    def other_commits(self) -> list[str]:
        return []

    def main_commit(self) -> str | None:
        return None

    def set_aside(self, path: str) -> bool:
        """Take a file that is of no use away, into a folder of ours. Returns whether anything was there."""
        place = self.link(path)
        if not os.path.lexists(place):
            return False
        move_aside(place, os.path.join(self.folder, _OURS, path))
        return True

    def _below(self, folder: str, ending: str) -> list[str]:
        """Paths in the folder."""
        found = []
        for place, _, names in os.walk(os.path.join(self.folder, folder)):
            found += [os.path.relpath(os.path.join(place, name), self.folder) for name in names]
        return sorted(path for path in found if path.endswith(ending))
