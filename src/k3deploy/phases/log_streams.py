"""The logs of several nodes' containers as one stream of words, each with the node it came from."""

import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from k3deploy.contracts import Nodes
from k3deploy.domain.command import Program
from k3deploy.domain.names import NodeName

# A beat comes every second; a reader that has been told to stop leaves at the next one.
_LEAVE_WITHIN_S = 3.0


@dataclass(frozen=True)
class Word:
    """`lines` of a container's log with their epoch seconds, at `now` of the node's clock; or, at last, its `end`."""

    node: NodeName
    now: float | None = None
    lines: tuple[tuple[float, str], ...] = ()
    end: Mapping[str, Any] | None = None
    error: BaseException | None = None


@dataclass
class LogStreams:
    """Follow `programs[node]` (of `remote/engine_logs.py`) on every node. Use as a context: leaving it ends them."""

    nodes: Nodes
    programs: Mapping[NodeName, Program]
    _words: "queue.Queue[Word]" = field(default_factory=queue.Queue)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "LogStreams":
        for node in self.programs:
            # Daemon threads: a connection that hangs in its last read must not keep the command from ending.
            thread = threading.Thread(target=self._read, args=(node,), name=f"log-{node}", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_LEAVE_WITHIN_S)

    def words(self, timeout_s: float) -> Sequence[Word]:
        """What came in, waiting at most so long for the first word. Raises what a node's stream failed with."""
        found = []
        try:
            found.append(self._words.get(timeout=timeout_s))
            while True:
                found.append(self._words.get_nowait())
        except queue.Empty:
            pass
        for word in found:
            if word.error is not None:
                raise word.error
        return found

    def _read(self, node: NodeName) -> None:
        try:
            for item in self.nodes[node].follow(self.programs[node]):
                self._words.put(self._word(node, item))
                if self._stop.is_set():
                    return  # which ends the program on the node
        except Exception as error:  # noqa: BLE001 - a thread's failure must reach the one that waits, whatever it is
            self._words.put(Word(node, error=error))

    def _word(self, node: NodeName, item: Mapping[str, Any]) -> Word:
        if "result" in item:
            return Word(node, end=item["result"])
        said = item["progress"]
        return Word(node, said["now"], tuple((float(at), str(text)) for at, text in said["lines"]))


def log_program(
    container: str, *, follow: bool, timeout_s: float, tail: int | None = None, since: float = 0.0
) -> Program:
    """The program that reads a container's log: all of it, its last lines, or what came after `since` (epoch s)."""
    args: dict[str, Any] = {"container": container, "follow": follow, "since": since}
    if tail is not None:
        args["tail"] = tail
    return Program("engine_logs", args, sudo=True, timeout_s=timeout_s)
