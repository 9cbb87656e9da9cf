"""The files that a fetch brings from the origin, for the share beside it: a new tracker asks that one who has what."""

import json
import os
from collections.abc import Mapping

from k3deploy.remote.job_folder import write_atomically

NAME = "leases.json"
_EVERY_S = 2.0


class LeasesFile:
    """`{"<index>": bytes that have landed}` in the fetch job's folder."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, NAME)
        self._written: dict[int, int] | None = None
        self._written_at = 0.0
        self.write({}, 0.0)

    def write(self, leases: Mapping[int, int], now: float) -> None:
        """At once when another file is on its way; else now and then: replacing a file waits for a busy disk."""
        is_new = self._written is None or leases.keys() != self._written.keys()
        if is_new or (leases != self._written and now - self._written_at >= _EVERY_S):
            write_atomically(self._path, json.dumps(leases))
            self._written, self._written_at = dict(leases), now
