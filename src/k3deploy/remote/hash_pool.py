"""Hash many large files with several processes, each reading ahead of itself, and say how far they are.

Processes rather than threads, and hashlib rather than sha256sum: measured cold, two processes with WILLNEED read-ahead
reach 0.9 of the disk's rate, 1.5 times as much as without; coreutils built without OpenSSL hashes six times slower.
"""

import contextlib
import hashlib
import mmap
import multiprocessing
import os
import signal
import struct
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from k3deploy.remote.protocol import Refusal

_BLOCK_BYTES = 4 << 20
_AHEAD_BYTES = 32 << 20
_DROP_BYTES = 256 << 20
_COUNTER = struct.Struct("<Q")
# One SHA-NI core hashes about 0.9 GB/s; beyond 16 the fastest local disks are the limit.
_MOST_PROCESSES = 16


class Task(NamedTuple):
    """One file to read. `is_sha256` False means a git blob id: sha1 over "blob <size>\\0" and the content."""

    number: int
    real: str
    size_bytes: int
    is_sha256: bool


class Hashed(NamedTuple):
    """What one file gave: a digest, or why it could not be read."""

    number: int
    digest: str
    error: str


def process_count(tasks: int) -> int:
    return max(1, min(len(os.sched_getaffinity(0)), _MOST_PROCESSES, tasks))


class HashPool:
    """`run` yields results as they come and None about twice a second between them; `bytes_done` counts meanwhile.

    Leaving the `with` block ends all processes, whatever they are doing. `is_cold`: read the disk, not the page cache.
    """

    def __init__(self, processes: int, *, is_cold: bool) -> None:
        self._is_cold = is_cold
        self._counters = mmap.mmap(-1, _COUNTER.size * processes)
        self._finished_bytes = 0
        fork = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(processes):
            ours, theirs = fork.Pipe()
            process = fork.Process(target=self._work, args=(number, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> "HashPool":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()

    @property
    def bytes_done(self) -> int:
        total = self._finished_bytes
        for number in range(len(self._pipes)):
            (count,) = _COUNTER.unpack_from(self._counters, _COUNTER.size * number)
            total += int(count)
        return total

    def run(self, tasks: list[Task], tick_s: float = 0.5) -> Iterator[Hashed | None]:
        """Biggest first, so that the last ones to finish are small. Raises Refusal when a process dies."""
        waiting = sorted(tasks, key=lambda task: task.size_bytes)
        busy: dict[int, Task] = {}
        for number in range(len(self._pipes)):
            self._give(number, waiting, busy)
        while busy:
            numbers = {self._pipes[number].fileno(): number for number in busy}
            sentinels = {self._processes[number].sentinel: number for number in busy}
            ready = [r for r in wait([*numbers, *sentinels], tick_s) if isinstance(r, int)]
            if not ready:
                yield None
            for handle in ready:
                if handle in numbers:
                    yield self._take(numbers[handle], waiting, busy)
                elif sentinels[handle] in busy and not self._pipes[sentinels[handle]].poll():
                    raise _died(self._processes[sentinels[handle]].exitcode)

    def _give(self, number: int, waiting: list[Task], busy: dict[int, Task]) -> None:
        if waiting:
            busy[number] = waiting.pop()
            self._pipes[number].send(busy[number])

    def _take(self, number: int, waiting: list[Task], busy: dict[int, Task]) -> Hashed:
        try:
            result: Hashed = self._pipes[number].recv()
        except EOFError:
            self._processes[number].join(5.0)
            raise _died(self._processes[number].exitcode) from None
        self._finished_bytes += busy.pop(number).size_bytes
        _COUNTER.pack_into(self._counters, _COUNTER.size * number, 0)
        self._give(number, waiting, busy)
        return result

    def _work(self, number: int, pipe: Connection) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        parent = os.getppid()

        def count(size_bytes: int) -> None:
            _COUNTER.pack_into(self._counters, _COUNTER.size * number, size_bytes)
            if os.getppid() != parent:
                os._exit(1)  # whoever wanted this is gone

        with contextlib.suppress(EOFError):
            while True:
                task: Task = pipe.recv()
                try:
                    pipe.send(Hashed(task.number, _digest(task, count, is_cold=self._is_cold), ""))
                except OSError as error:  # the disk could not give the bytes back: the most important fault of all
                    pipe.send(Hashed(task.number, "", str(error)))


def _died(exit_code: int | None) -> Refusal:
    return Refusal(
        f"a hashing process died (exit code {exit_code})",
        why="it was killed from outside, most often because memory ran out",
        fix="look at `dmesg` on the node, then run the same command again: files hashed so far are kept",
    )


def _digest(task: Task, count: Callable[[int], None], *, is_cold: bool) -> str:
    digest = hashlib.sha256() if task.is_sha256 else hashlib.sha1(b"blob %d\0" % task.size_bytes)
    buffer = bytearray(_BLOCK_BYTES)
    view = memoryview(buffer)
    descriptor = os.open(task.real, os.O_RDONLY)
    try:
        if is_cold:
            os.fsync(descriptor)  # pages that are not written yet cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        position = dropped = 0
        while True:
            os.posix_fadvise(descriptor, position + _BLOCK_BYTES, _AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            length = os.readv(descriptor, [buffer])
            if length == 0:
                return digest.hexdigest()
            digest.update(view[:length])
            position += length
            if is_cold and position - dropped > _DROP_BYTES:
                # Nobody will read these again soon: the node's memory is for whoever runs on it.
                os.posix_fadvise(descriptor, dropped, position - dropped, os.POSIX_FADV_DONTNEED)
                dropped = position
            count(position)
    finally:
        os.close(descriptor)
