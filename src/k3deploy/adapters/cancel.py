"""A switch that one thread throws and others watch. Who throws it on Ctrl-C is the command line's business."""

import threading


class EventCancel:
    """Implements `contracts.Cancel`."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """Safe in a signal handler."""
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long; whether it is set."""
        return self._event.wait(timeout_s)
