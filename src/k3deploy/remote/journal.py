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
        """Append; an entry of this kind and path that is there already keeps its place and takes the new values."""
        entries = self.entries()
        for each in entries:
            if each["kind"] == entry["kind"] and each["path"] == entry["path"]:
                each.update(entry)
                break
        else:
            entries.append(entry)
        self._write(entries)

    def drop(self, entry: dict[str, Any]) -> None:
        """Forget what was undone."""
        self._write([each for each in self.entries() if each != entry])

    def _write(self, entries: list[dict[str, Any]]) -> None:
        write_atomically(self.path, json.dumps({"schema": SCHEMA, "entries": entries}, indent=1), outlives_power=True)


def _unreadable(path: str, why: str) -> Refusal:
    return Refusal(
        f"{path} cannot be read",
        why=f"{why}; without it nobody knows what this run changed on the node",
        fix="look at the file; if it is damaged, undo the changes by hand and remove it",
        path=path,
    )
