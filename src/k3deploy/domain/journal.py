"""The record of what a run made or changed on a node (`created.json` in the run's folder there), typed.

The file is {"schema": 1, "entries": [...]}, oldest entry first, each written before its act:

    {"kind": "folder", "path": P}                       P did not exist and was made
    {"kind": "daemon-json", "path": P, "backup": B, "written_sha256": H}
        P was replaced by bytes of this digest; B holds what it was, or B.absent is there: there was no such file
    {"kind": "image", "path": R}                        the image R (repository@digest) was not there and was pulled

`remote/journal.py` writes it, `remote/storage_restore.py` undoes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FOLDER: Final = "folder"
DAEMON_JSON: Final = "daemon-json"
IMAGE: Final = "image"


@dataclass(frozen=True)
class Entry:
    kind: str
    path: str
    backup: str | None = None

    @property
    def undo(self) -> str:
        """What an undo would do, for people."""
        if self.kind == DAEMON_JSON:
            return f"put {self.path} back as it was and restart Docker"
        return f"remove image {self.path}" if self.kind == IMAGE else f"remove {self.path}"


def parse(rows: Sequence[Mapping[str, Any]]) -> tuple[Entry, ...]:
    """From the `journal` of the storage section's answer."""
    return tuple(Entry(row["kind"], row["path"], row.get("backup")) for row in rows)
