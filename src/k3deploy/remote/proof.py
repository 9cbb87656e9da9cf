"""What is known of each file's bytes: from the stamps of earlier proofs, and from what is hashed now."""

import time
from typing import Any

from k3deploy.remote.hash_pool import HashPool, Task, thread_count
from k3deploy.remote.hub_cache import Fault, Found, Wanted
from k3deploy.remote.protocol import Say
from k3deploy.remote.stamps import Stamps, is_unchanged, unreadable
from k3deploy.remote.weights_check import digest_fault

_SAVE_EVERY_S = 5.0


class Proof:
    """One proof of the files that were found, at a level of `hashing`. Stamps are written only if `keeps_stamps`."""

    def __init__(
        self, files: list[Wanted], found: dict[str, Found], stamps: Stamps, level: str, *, keeps_stamps: bool
    ) -> None:
        self._files = [file for file in files if file.path in found]
        self._found = found
        self._stamps = stamps
        self._level = level
        self._keeps_stamps = keeps_stamps
        self._hashed: list[Wanted] = []

    def hash(self, threads: int | None, say: Say, *, keep_cached: bool) -> None:
        """Hash what this level has to, and stamp it. What the disk would not give back is stamped as bad."""
        waiting = [file for file in self._files if self._is_to_be_hashed(file)]
        tasks = [Task(number, file, self._found[file.path].real) for number, file in enumerate(waiting)]
        total = sum(file.size_bytes for file in waiting)
        pool = HashPool(keep_cached=keep_cached, from_disk=self._level == "full")
        saved = time.monotonic()
        try:
            for result in pool.run(tasks, threads or thread_count(len(tasks))):
                if result is not None:
                    self._take(waiting[result.number], result.digest or unreadable(result.error))
                now = time.monotonic()
                if now - saved > _SAVE_EVERY_S:
                    self.save()
                    saved = now
                say({"message": "hashing weights", "done": pool.bytes_done, "total": total})
        finally:
            self.save()  # stopped half-way: what was hashed need not be hashed again

    def save(self) -> None:
        if self._keeps_stamps:
            self._stamps.save()

    def faults(self) -> list[Fault]:
        """Files whose bytes are known to be wrong, and those that changed while they were read."""
        faults = []
        for file in self._files:
            digest = self._stamps.digest_of(file, self._found[file.path])
            if digest is None:
                if file in self._hashed:
                    faults.append(Fault(file.path, "changed", "a file that is being written to", "one at rest"))
            elif digest != file.digest:
                faults.append(digest_fault(file, digest))
        return faults

    def figures(self) -> dict[str, Any]:
        """How much of the proof is new. `known`: files that a stamp covers, the oldest one of the time `known_at`."""
        hashed = {file.path for file in self._hashed}
        stamped = [file for file in self._files if file.path not in hashed]
        times = [at for file in stamped if (at := self._stamps.time_of(file, self._found[file.path])) is not None]
        return {
            "hashed": len(self._hashed),
            "hashed_bytes": sum(file.size_bytes for file in self._hashed),
            "known": len(times),
            "known_at": min(times, default=None),
            "proved": sum(
                1 for file in self._files if self._stamps.digest_of(file, self._found[file.path]) == file.digest
            ),
            "mismatches": {file.path: count for file in self._files if (count := self._stamps.mismatches(file)) > 1},
        }

    def _is_to_be_hashed(self, file: Wanted) -> bool:
        """A quick look hashes what is small enough to have no sha256 on the Hub."""
        if self._level == "quick" and file.is_sha256:
            return False
        return self._level == "full" or self._stamps.digest_of(file, self._found[file.path]) is None

    def _take(self, file: Wanted, digest: str) -> None:
        self._hashed.append(file)
        if is_unchanged(self._found[file.path]):
            self._stamps.put(file, self._found[file.path], digest)
