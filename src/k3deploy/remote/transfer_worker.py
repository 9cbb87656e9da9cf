"""What all transfer processes have in common: tasks come on stdin, words go to stdout, and the end of stdin ends them.

They are processes of their own because a transfer can hang inside native code, where no timeout reaches it, and they
can be killed at any moment. None is left behind whatever happens to the parent.

Tasks: {"file": a Wanted's fields, ...}, or {"stop": path}. Words: {"ready": true} once, {"landed": path} when all bytes
are here and only proof is left, {"proving": path} while that lasts, {"wait_s": n} when the other side asked for
patience, and {"file": path, "failure": null or {kind, text, wait_s}, "digest", "identity", ...} at the end of each.
"""

import itertools
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from k3deploy.remote.fetch_failure import STOPPED, failure, kind_of
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.landing import prove
from k3deploy.remote.protocol import Say

_SAY_EVERY_S = 2.0


class StoppedHere(Exception):
    """The parent does not want this file any more."""


class Task:
    """One file in the hands of one thread. `gate` lets few files be on their way at once."""

    def __init__(self, body: dict[str, Any], say: Say, gate: threading.Semaphore) -> None:
        self.body = body
        self.file = Wanted(**body["file"])
        self.say = say
        self.is_unwanted = False
        self._gate = gate
        self._has_landed = False
        self._said_at = time.monotonic()

    def go_on(self) -> None:
        """Called for each piece of work. Raises StoppedHere."""
        if self.is_unwanted:
            raise StoppedHere

    def landed(self) -> None:
        self._has_landed = True
        self._gate.release()
        self.say({"landed": self.file.path})

    def run(self, transfer: "Transfer") -> dict[str, Any]:
        """Raises what the transfer raises."""
        self._gate.acquire()
        try:
            self.go_on()
            return transfer(self)
        finally:
            if not self._has_landed:
                self._gate.release()

    def prove(self, path: str) -> dict[str, Any]:
        """Read what is at `path`; the fields of the last word."""
        digest, identity = prove(path, self.file, self.still_reading)
        return {"failure": None, "digest": digest, "identity": identity}

    def still_reading(self) -> None:
        """`go_on` for bytes that are here already, which nobody sees growing."""
        self.go_on()
        now = time.monotonic()
        if now - self._said_at > _SAY_EVERY_S:
            self._said_at = now
            self.say({"proving": self.file.path})


Transfer = Callable[[Task], dict[str, Any]]


def read_settings() -> dict[str, Any]:
    """The first line of stdin."""
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    return settings


def telling(say: Say) -> Say:
    """A `say` for several threads."""
    lock = threading.Lock()

    def tell(word: dict[str, Any]) -> None:
        with lock:
            say(word)

    return tell


def serve_tasks(transfer: Transfer, threads: int, tell: Say) -> NoReturn:
    """Work until stdin ends. `threads` files are on their way at once, and as many may be proved meanwhile.

    The largest first: others wait for it, and small ones only cost requests.
    """
    gate = threading.Semaphore(threads)
    waiting: queue.PriorityQueue[tuple[int, int, Task]] = queue.PriorityQueue()
    numbers = itertools.count()
    tasks: dict[str, Task] = {}
    for _ in range(2 * threads):
        threading.Thread(target=_serve, args=(waiting, transfer), daemon=True).start()
    tell({"ready": True})
    for line in sys.stdin:
        body = json.loads(line)
        if "stop" in body:
            if body["stop"] in tasks:
                tasks[body["stop"]].is_unwanted = True
        else:
            task = Task(body, tell, gate)
            tasks[task.file.path] = task
            waiting.put((-task.file.size_bytes, next(numbers), task))
    # Our parent is gone, or has had enough. A transfer in hand cannot be stopped politely.
    os._exit(0)


def _serve(waiting: "queue.PriorityQueue[tuple[int, int, Task]]", transfer: Transfer) -> None:
    while True:
        _, _, task = waiting.get()
        try:
            word = task.run(transfer)
        except StoppedHere:
            word = {"failure": failure(STOPPED, "stopped")}
        except OSError as error:
            word = {"failure": failure(kind_of(error), f"{type(error).__name__}: {error}")}
        except BaseException:  # noqa: BLE001 - a mistake of ours must not look like a peer that sends nothing
            traceback.print_exc()
            os._exit(1)
        task.say({"file": task.file.path, **word})
