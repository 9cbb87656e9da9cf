"""Wait for something that is read back, never for a fixed time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
POLL_S = 0.1


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float, *, poll_s: float = POLL_S) -> T:
    """Call `probe` until it returns something true; it may raise LabError when waiting has become pointless."""
    end = time.monotonic() + timeout_s
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() >= end:
            raise LabError(f"{what}: not so after {timeout_s:.0f} s")
        time.sleep(poll_s)
