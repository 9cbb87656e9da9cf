"""One child process per GPU, as the real engine has one scheduler per GPU: something to find, to count and to kill."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .launch import Rank


class Workers:
    """The schedulers of this node. They only wait: the main process speaks for them."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        leash, held = os.pipe()
        self._held = held
        self.pids = {rank: _fork(rank, leash, held) for rank in ranks}
        os.close(leash)
        self._ended = threading.Event()

    def watch(self, on_death: Callable[[Rank, int, int], None]) -> None:
        """Call `on_death(rank, pid, exit code)` when one of them dies by itself."""
        threading.Thread(target=self._watch, args=(on_death,), daemon=True).start()

    def _watch(self, on_death: Callable[[Rank, int, int], None]) -> None:
        while not self._ended.is_set():
            for rank, pid in self.pids.items():
                with suppress(ChildProcessError):
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended and not self._ended.is_set():
                        on_death(rank, pid, os.waitstatus_to_exitcode(status))
                        return
            time.sleep(0.25)

    def kill(self) -> None:
        """End all of them."""
        self._ended.set()
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self.pids.values():
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _fork(rank: Rank, leash: int, held: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.close(held)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    title = f"sglang::scheduler_{rank.tag.replace(' ', '_')}" if rank.tag else "sglang::scheduler"
    Path("/proc/self/comm").write_text(title, encoding="utf-8")
    os.read(leash, 1)  # ends when the parent does
    os._exit(0)
