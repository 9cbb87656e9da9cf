"""Read into memory what is not there yet of the weights, so that an engine's first start reads no disk.

In the order in which an engine takes the files: should it start meanwhile, it finds the first ones read.
"""

import os
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from k3deploy.remote.page_cache import Span, absent_spans, weight_files
from k3deploy.remote.protocol import Refusal, Say

_WINDOW_BYTES = 256 << 20
_BLOCK_BYTES = 4 << 20
_TICK_S = 0.5
# Reading waits, it does not compute: several readers keep a disk's queue full on a machine with few cores too.
_FEWEST_READERS = 4
_MOST_READERS = 16


class _Window(NamedTuple):
    path: str
    span: Span


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: hf_home, repositories ([[repo, commit], ...]). `read_bytes`: what was not in memory before.

    Raises Refusal for a file that cannot be read: the engine could not read it either.
    """
    started = time.monotonic()
    windows = [window for path in weight_files(args["hf_home"], args["repositories"]) for window in _windows(path)]
    reading = _Reading()
    with ThreadPoolExecutor(_readers(), thread_name_prefix="read") as pool:
        try:
            left: set[Future[None]] = {pool.submit(reading.take, window) for window in windows}
            total_bytes = sum(window.span.length for window in windows)
            while left:
                done, left = wait(left, _TICK_S, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                say({"message": "reading weights into memory", "done": reading.done_bytes, "total": total_bytes})
        finally:
            reading.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return {"bytes": total_bytes, "read_bytes": reading.read_bytes, "seconds": time.monotonic() - started}


def _windows(path: str) -> list[_Window]:
    size = os.path.getsize(path)
    return [_Window(path, Span(at, min(_WINDOW_BYTES, size - at))) for at in range(0, size, _WINDOW_BYTES)]


def _readers() -> int:
    return max(_FEWEST_READERS, min(_MOST_READERS, len(os.sched_getaffinity(0))))


class _Reading:
    """What the readers have done so far. `done_bytes` counts what was in memory already too."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.done_bytes = 0
        self.read_bytes = 0
        self._lock = threading.Lock()

    def take(self, window: _Window) -> None:
        """Read what is absent of one window. Raises Refusal."""
        try:
            descriptor = os.open(window.path, os.O_RDONLY)
            try:
                self._fill(descriptor, window.span)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Refusal(
                f"{window.path} cannot be read",
                why=str(error),
                fix="`k3deploy verify-shards` tells which files are bad; look at the node's kernel log for its disk",
                path=window.path,
            ) from error

    def _fill(self, descriptor: int, span: Span) -> None:
        absent = list(absent_spans(descriptor, span))
        self._count(span.length - sum(each.length for each in absent), 0)
        buffer = bytearray(_BLOCK_BYTES)
        view = memoryview(buffer)
        for each in absent:
            position, end = each.offset, each.offset + each.length
            while position < end and not self.stop.is_set():
                os.posix_fadvise(descriptor, position + _BLOCK_BYTES, _BLOCK_BYTES, os.POSIX_FADV_WILLNEED)
                length = os.preadv(descriptor, [view[: min(_BLOCK_BYTES, end - position)]], position)
                if length == 0:
                    return  # it was cut short meanwhile: whoever did that has to be told by others
                position += length
                self._count(length, length)

    def _count(self, done_bytes: int, read_bytes: int) -> None:
        with self._lock:
            self.done_bytes += done_bytes
            self.read_bytes += read_bytes
