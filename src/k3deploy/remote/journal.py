"""The record of what a run made or changed on this node, so that exactly that can be undone. Shape: domain/journal.py.

An entry is written before its act: an undo then finds nothing to do at worst.
"""

import json
from typing import Any

from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.protocol import Refusal

SCHEMA = 1
FILE_NAME = "created.json"


class Journal:
    def __init__(self, run_dir: str) -> None:
        self.path = f"{run_dir}/{FILE_NAME}"

    def entries(self) -> list[dict[str, Any]]:
        """Oldest first; empty when there is no journal. Raises Refusal for one of another shape."""
        try:
            with open(self.path, encoding="utf-8") as file:
                body = json.load(file)
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise _unreadable(self.path, str(error)) from error
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            raise _unreadable(self.path, "it is not of the shape that this version writes")
        entries: list[dict[str, Any]] = body["entries"]
        return entries

    def add(self, entry: dict[str, Any]) -> None:
        """Append, unless an entry of this kind and path is there: the oldest one knows the state before us."""
        entries = self.entries()
        if any(each["kind"] == entry["kind"] and each["path"] == entry["path"] for each in entries):
            return
        body = {"schema": SCHEMA, "entries": [*entries, entry]}
        write_atomically(self.path, json.dumps(body, indent=1))

    def has(self, kind: str, path: str) -> bool:
        return any(each["kind"] == kind and each["path"] == path for each in self.entries())


def _unreadable(path: str, why: str) -> Refusal:
    return Refusal(
        f"{path} cannot be read",
        why=f"{why}; without it nobody knows what this run changed on the node",
        fix="look at the file; if it is damaged, undo the changes by hand and remove it",
        path=path,
    )
