"""What has come: files that were proved and stamped, bytes by where they came from, and how fast."""

import contextlib
import os
from typing import Any

from k3deploy.remote.fetch_failure import RETRY, failure, wrong_bytes
from k3deploy.remote.fetch_link import FetchLink
from k3deploy.remote.fetch_process import FetchProcess
from k3deploy.remote.hub_cache import Fault, Repository, Wanted
from k3deploy.remote.partial_name import resumable
from k3deploy.remote.stamps import Stamps, identity
from k3deploy.remote.tidy import make_way


class Ledger:
    """`wanted`: what still has to come, by path."""

    def __init__(self, repository: Repository, stamps: Stamps, files: list[Wanted], missing: list[Wanted]) -> None:
        self.wanted = {file.path: file for file in missing}
        self.hub = FetchLink()
        self.lan = FetchLink()
        self._repository = repository
        self._stamps = stamps
        self._is_saved = True
        self._files_total = len(files)
        self._shards = {file.path for file in files if file.is_shard}
        self._total_bytes = sum(file.size_bytes for file in files)
        self._done_bytes = self._total_bytes - sum(file.size_bytes for file in missing)
        self._began: float | None = None
        self._elapsed_s = 0.0

    def accept(self, file: Wanted, word: dict[str, Any]) -> "dict[str, Any] | None":
        """Stamp a file that a worker has hashed. Returns a failure where it is not what it should be."""
        found = self._repository.look_at(file)
        if isinstance(found, Fault):
            # "Download complete" is said of short files too; the next try must not find this one.
            make_way(self._repository, file, is_bad=False)
            return failure(RETRY, f"found {found.found}, wanted {found.wanted}")
        if identity(found) != word["identity"]:
            return failure(RETRY, "it was replaced while it was read")
        self._stamps.put(file, found, word["digest"])
        self._is_saved = False
        if word["digest"] != file.digest:
            make_way(self._repository, file, is_bad=True)
            return wrong_bytes(word["digest"], file.digest)
        if self.wanted.pop(file.path, None) is not None:
            self._done_bytes += file.size_bytes
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._repository.blob(resumable(file.digest)))  # a half of it that came another way
        return None

    def save(self) -> None:
        """Keep what was proved, before anybody is told of it."""
        if not self._is_saved:
            self._stamps.save()
            self._is_saved = True

    def sample(self, now: float, origin: list[FetchProcess], peers: list[FetchProcess]) -> None:
        """Measure both links by what is on its way."""
        self._began = now if self._began is None else self._began
        self._elapsed_s = now - self._began
        self.hub.sample(now, origin)
        self.lan.sample(now, peers)

    def progress(self, note: str, landing_bytes: int, told: dict[str, Any]) -> dict[str, Any]:
        """For the job's progress. Stable words in the message: what changes with every look is in the numbers."""
        done = min(self._total_bytes, self._done_bytes + landing_bytes)
        hub, lan = self.hub.recent, self.lan.recent
        return {
            "message": f"fetching weights ({note})" if note else "fetching weights",
            "done": done,
            "total": self._total_bytes,
            "files_done": self._files_total - len(self.wanted),
            "files_total": self._files_total,
            "shards_done": len(self._shards - self.wanted.keys()),
            "shards_total": len(self._shards),
            "hub_bytes": hub.moved_bytes,
            "peer_bytes": lan.moved_bytes,
            "hub_bps": hub.bps,
            "peer_bps": lan.bps,
            "eta_s": (self._total_bytes - done) / (hub.bps + lan.bps) if hub.bps + lan.bps else None,
            "elapsed_s": self._elapsed_s,
            **told,
        }
