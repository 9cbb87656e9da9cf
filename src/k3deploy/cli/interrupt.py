"""Ctrl-C: once finishes the steps in hand and starts nothing after them; twice leaves at once with 130."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from k3deploy.adapters.cancel import EventCancel
from k3deploy.domain.errors import ExitCode


@contextmanager
def stop_on_signal(cancel: EventCancel, describe: Callable[[], str]) -> Iterator[None]:
    """Within this block the first SIGINT or SIGTERM sets `cancel` and prints `describe()`; the second one exits."""

    def handle(_signum: int, _frame: FrameType | None) -> None:
        if cancel.is_set:
            _say("leaving at once; detached work on the nodes goes on\n")
            os._exit(ExitCode.INTERRUPTED)
        cancel.set()
        _say(describe() + "\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    """Past Python's own buffer, which the interrupted thread may hold; a terminal that is gone hears nothing."""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), text.encode())
