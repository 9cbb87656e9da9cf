"""Who the nodes of a run are to each other: a file that the operator writes, read again when it changes."""

import json
import os


class PeerList:
    """The private addresses of a run's nodes, by name, in the run's order."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._nodes: dict[str, str] = {}

    @property
    def version(self) -> object:
        """Another value each time that the operator has written the file, be it with the same words."""
        self.nodes()
        return self._version

    def nodes(self) -> dict[str, str]:
        """As the file says now; what it said last where it cannot be read, nobody where it never could."""
        try:
            status = os.stat(self._path)
            version = (status.st_ino, status.st_mtime_ns)
            if version != self._version:
                with open(self._path, encoding="utf-8") as file:
                    self._nodes = {str(name): str(address) for name, address in json.load(file)["nodes"].items()}
                self._version = version
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # it is about to be written, or was damaged: a node that knows nobody still fetches by itself
        return self._nodes
