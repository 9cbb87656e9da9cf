"""Network namespaces from Python: run a call as if on the lab's network (os.setns is 3.12's; we run on 3.11)."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
NETNS_FOLDER = Path("/run/netns")


def in_netns(netns: str, call: Callable[[], T]) -> T:
    """Run `call` in a thread of its own that has joined the namespace; sockets made there stay in it."""
    results: list[T] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            _join(netns)
            results.append(call())
        except BaseException as err:  # noqa: BLE001 - handed to the caller's thread, unchanged
            failures.append(err)

    thread = threading.Thread(target=body, name=f"netns {netns}", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def _join(netns: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(NETNS_FOLDER / netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(handle, CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(NETNS_FOLDER / netns))
    finally:
        os.close(handle)
