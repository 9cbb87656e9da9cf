"""Hash many large files at once, and say how far they are.

With threads: hashlib and read(2) let go of Python's lock, so that they are as fast as processes (measured, hot and
cold), and a node of many cores needs the memory of one process. With hashlib rather than sha256sum, which hashes six
times slower where it was built without OpenSSL.
"""

import mmap
import os
import queue
import threading
from collections import deque
from collections.abc import Generator
from typing import NamedTuple

from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.shard_reader import block_buffer, blocks

# While one of a core's two threads waits for its block, the other one hashes.
_THREADS_A_CORE = 2
# One SHA-NI core hashes 0.9 to 1.8 GB/s: these use up the fastest local disks, in 4 MB of memory each.
_MOST_THREADS = 32
_STOP_WITHIN_S = 5.0


class Task(NamedTuple):
    """One file to read, and where its bytes are."""

    number: int
    file: Wanted
    real: str


class Hashed(NamedTuple):
    """What one file gave: a digest, or why it could not be read."""

    number: int
    digest: str
    error: str


def thread_count(tasks: int) -> int:
    return max(1, min(len(os.sched_getaffinity(0)) * _THREADS_A_CORE, _MOST_THREADS, tasks))


class HashPool:
    """One use: `run` yields results as they come and None about twice a second between them.

    `bytes_done` counts meanwhile. Leaving `run` early stops all threads at their next block. `keep_cached` and
    `from_disk` are those of `shard_reader.blocks`.
    """

    def __init__(self, *, keep_cached: bool, from_disk: bool) -> None:
        self._keep_cached = keep_cached
        self._from_disk = from_disk
        self._waiting: deque[Task] = deque()
        self._results: queue.SimpleQueue[Hashed | BaseException] = queue.SimpleQueue()
        self._counts: list[int] = []
        self._is_stopped = False

    @property
    def bytes_done(self) -> int:
        return sum(self._counts)

    def run(self, tasks: list[Task], threads: int, tick_s: float = 0.5) -> Generator[Hashed | None, None, None]:
        """Biggest first, so that the last ones to finish are small."""
        self._waiting.extend(sorted(tasks, key=lambda task: task.file.size_bytes, reverse=True))
        self._counts = [0] * threads
        # Daemons: one that a broken disk holds for ever must not hold the program.
        crew = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(threads)]
        for thread in crew:
            thread.start()
        left = len(tasks)
        try:
            while left:
                try:
                    result = self._results.get(timeout=tick_s)
                except queue.Empty:
                    yield None
                    continue
                if isinstance(result, BaseException):
                    raise result
                left -= 1
                yield result
        finally:
            self._is_stopped = True
            for thread in crew:
                thread.join(_STOP_WITHIN_S)

    def _work(self, number: int) -> None:
        buffer = block_buffer()
        while self._waiting and not self._is_stopped:
            try:
                task = self._waiting.popleft()
            except IndexError:
                return  # another thread was faster
            try:
                self._results.put(Hashed(task.number, self._digest(task, buffer, number), ""))
            except OSError as error:  # the disk could not give the bytes back: the most important fault of all
                self._results.put(Hashed(task.number, "", str(error)))
            except BaseException as error:  # noqa: BLE001 - told where `run` is; a thread's own end would go unseen
                self._results.put(error)

    def _digest(self, task: Task, buffer: mmap.mmap, number: int) -> str:
        digest = task.file.hasher()
        for block in blocks(task.real, buffer, keep_cached=self._keep_cached, from_disk=self._from_disk):
            digest.update(block)
            self._counts[number] += len(block)
            if self._is_stopped:
                break  # nobody waits for the digest any more
        return digest.hexdigest()
