"""A transfer process as its parent sees it: start, give work, hear what it says, notice that it stands still, kill."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from k3deploy.remote.hub_cache import Repository, Wanted
from k3deploy.remote.partial_name import digest_of, is_resumable

# What a smaller file costs is requests, not bytes: its rate says nothing of the link.
_TELLING_BYTES = 4 << 20
_END_WITHIN_S = 10.0
# Compiling and importing the client takes a second or two, more on a machine that is busy pulling an image.
_READY_WITHIN_S = 60.0
# A transfer that was told to stop looks up after each piece; one that hangs does not.
_STOP_WITHIN_S = 2.0


@dataclass(frozen=True)
class Road:
    """One way for files to come: which worker brings them, `in_hand` given to a process at once, `most` processes.

    Roads of one `group` share the number of processes. `settings` goes to the worker by stdin, because it holds tokens.
    """

    group: str
    words: str
    entry: str
    in_hand: int
    most: int
    settings: dict[str, Any]
    environment: dict[str, str]
    is_peer: bool = False
    is_resumable: bool = False


@dataclass
class InHand:
    """A file in the hands of a process, and what is here of it. `began_bytes` lay here before."""

    file: Wanted
    began_bytes: int
    landing_bytes: int
    has_landed: bool = False
    stop_by: float | None = None

    @property
    def is_unwanted(self) -> bool:
        return self.stop_by is not None

    @property
    def moved_bytes(self) -> int:
        return self.landing_bytes - self.began_bytes


def tells_rate(file: Wanted) -> bool:
    """Whether it is large enough to say something of its link."""
    return file.size_bytes >= _TELLING_BYTES


class FetchProcess:
    """One running worker."""

    def __init__(self, road: Road, script: str, repository: Repository) -> None:
        self.road = road
        self.is_ready = False
        self.fault = ""
        self._repository = repository
        self._in_hand: dict[str, InHand] = {}
        self._moved_at = time.monotonic()
        self._patient_until = time.monotonic() + _READY_WITHIN_S
        self._heard = b""
        self._process = subprocess.Popen(
            [sys.executable or "python3", "-I", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=road.environment,
            cwd="/",
        )
        self._send(road.settings)

    @property
    def is_idle(self) -> bool:
        return not self._in_hand

    @property
    def has_room(self) -> bool:
        on_their_way = sum(1 for each in self._in_hand.values() if not each.has_landed)
        # A file that is being proved needs no link; but proof that falls behind must not pile up.
        return on_their_way < self.road.in_hand and len(self._in_hand) < 2 * self.road.in_hand

    @property
    def fills_link(self) -> bool:
        """Whether something is on its way that tells how fast its link is."""
        return self.is_ready and any(not each.has_landed and tells_rate(each.file) for each in self._in_hand.values())

    def fileno(self) -> int:
        """For `select`: readable when there is something to hear."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def give(self, file: Wanted, **more: Any) -> None:
        if not self._in_hand:
            self._moved_at = time.monotonic()
        each = self._in_hand[file.path] = InHand(file, 0, 0)
        if self.road.is_resumable:
            each.began_bytes = each.landing_bytes = self._sizes().get(file.digest, 0)
        self._send({"file": file._asdict(), **more})

    def stop(self, path: str) -> None:
        """Ask it to let go of a file that is still on its way. It `is_deaf` when it does not."""
        each = self._in_hand[path]
        if not each.has_landed and not each.is_unwanted:
            each.stop_by = time.monotonic() + _STOP_WITHIN_S
            self._send({"stop": path})

    @property
    def is_deaf(self) -> bool:
        now = time.monotonic()
        late = [each.stop_by for each in self._in_hand.values() if each.stop_by and not each.has_landed]
        return any(stop_by < now for stop_by in late)

    def hear(self) -> "list[dict[str, Any]] | None":
        """The words said since the last time; None when it has ended. Call it when `fileno` is readable."""
        piece = os.read(self.fileno(), 65536)
        if not piece:
            return None
        *lines, self._heard = (self._heard + piece).split(b"\n")
        words = [json.loads(line) for line in lines if line.startswith(b"{")]
        if words:
            self._moved_at = time.monotonic()
        return words

    def ready(self) -> None:
        """It has said that it takes work now."""
        self.is_ready = True
        self._patient_until = 0.0

    def be_patient(self, seconds: float) -> None:
        """The other side asked for a pause: standing still is right until then."""
        self._patient_until = max(self._patient_until, time.monotonic() + seconds)

    def landed(self, path: str) -> None:
        each = self._in_hand[path]
        each.has_landed, each.landing_bytes = True, each.file.size_bytes

    def finished(self, path: str) -> tuple[Wanted, int]:
        """It has let go of a file: which one, and how many bytes of it came meanwhile."""
        each = self._in_hand.pop(path)
        return each.file, each.moved_bytes

    def look(self) -> None:
        """See how much has landed; call it often."""
        if not self._in_hand:
            self._moved_at = time.monotonic()
            return
        sizes = self._sizes()
        before = self.moved_bytes
        for each in self._in_hand.values():
            if not each.has_landed:
                each.landing_bytes = sizes.get(each.file.digest, 0)
        if self.moved_bytes != before:
            self._moved_at = time.monotonic()

    @property
    def moved_bytes(self) -> int:
        """What came of the files in hand, since they were given."""
        return sum(each.moved_bytes for each in self._in_hand.values())

    @property
    def moved_large_bytes(self) -> int:
        """The same of files that tell how fast a link is."""
        return sum(each.moved_bytes for each in self._in_hand.values() if tells_rate(each.file))

    def landing_bytes(self) -> dict[str, int]:
        """What is here of each file in hand, by path."""
        return {path: each.landing_bytes for path, each in self._in_hand.items()}

    @property
    def idle_s(self) -> float:
        """How long nothing was heard and nothing has grown."""
        return max(0.0, time.monotonic() - max(self._moved_at, self._patient_until))

    def kill(self) -> list[InHand]:
        """End it whatever it does, remove what is of no use to others, and return what it had in hand."""
        self._process.kill()
        # A process that waits for a broken disk outlives SIGKILL for a while; we do not wait for it.
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.communicate(timeout=_END_WITHIN_S)
        if not self.road.is_resumable:
            for name in self._partials():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._repository.blob(name))
        left = list(self._in_hand.values())
        self._in_hand = {}
        return left

    @property
    def exit_code(self) -> "int | None":
        return self._process.poll()

    def _send(self, body: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: `hear` will say so
            self._process.stdin.write(json.dumps(body).encode() + b"\n")
            self._process.stdin.flush()

    def _sizes(self) -> dict[str, int]:
        """What lies on the disk of the unfinished files of this kind, by digest."""
        sizes: dict[str, int] = {}
        for name in self._partials():
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(self._repository.blob(name))
                # A client may reserve the whole length first; blocks count what was written (delayed ones included).
                sizes[digest_of(name)] = min(status.st_size, status.st_blocks * 512)
        return sizes

    def _partials(self) -> list[str]:
        digests = {each.file.digest for each in self._in_hand.values()}
        return [
            name
            for name in self._repository.partials()
            if digest_of(name) in digests and is_resumable(name) == self.road.is_resumable
        ]
