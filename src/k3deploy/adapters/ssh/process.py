"""One command on a session channel: both output streams together, one deadline that covers the exit status too."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import paramiko

from k3deploy.adapters.deadline import Deadline

CHUNK_BYTES = 1 << 16
GRACE_S = 5.0
LAST_WORD_S = 2.0
KILLED = 255


class Expired(Exception):
    """The deadline passed before the command was done. `exit_code` when it had ended and only its output had not."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__("deadline passed")
        self.exit_code = exit_code


class Broken(Exception):
    """The connection broke after the command was sent."""


@dataclass(frozen=True)
class Chunk:
    data: bytes
    is_stderr: bool


class Process:
    """Start a line with all its input at once, read what it prints, then ask for its exit code.

    paramiko 5.1 has waits without any timeout (for the answer to `exec`, for the exit status): so one thread
    closes the channel when the deadline passes, which ends all of them.
    """

    def __init__(self, channel: paramiko.Channel, deadline: Deadline) -> None:
        self._channel = channel
        self._deadline = deadline
        self._arrived = threading.Event()

    @contextlib.contextmanager
    def started(self, line: str, stdin: bytes) -> Iterator["Process"]:
        """Raises Expired or Broken, also for what happens inside the block."""
        channel = self._channel
        with closes_at(channel, self._deadline):
            channel.in_buffer.set_event(self._arrived)
            channel.in_stderr_buffer.set_event(self._arrived)
            try:
                channel.exec_command(line)
                if stdin:
                    # A program that ends without reading its input is judged by its exit code.
                    with contextlib.suppress(OSError):
                        channel.sendall(stdin)
                channel.shutdown_write()
                yield self
            except (paramiko.SSHException, EOFError, OSError) as err:
                self._check_deadline()
                raise Broken(str(err) or type(err).__name__) from err

    def chunks(self) -> Iterator[Chunk]:
        """Output as it comes, until both streams have ended."""
        channel = self._channel
        while True:
            got_something = False
            if channel.recv_ready():
                got_something = True
                yield Chunk(channel.recv(CHUNK_BYTES), is_stderr=False)
            if channel.recv_stderr_ready():
                got_something = True
                yield Chunk(channel.recv_stderr(CHUNK_BYTES), is_stderr=True)
            if got_something:
                continue
            # Nothing was read, so nothing cleared the event after the buffers were looked at: no wake-up is lost.
            if channel.eof_received or channel.closed:
                if not channel.recv_ready() and not channel.recv_stderr_ready():
                    break
                continue
            self._arrived.wait(self._deadline.remaining_s)
            self._check_deadline()
        self._check_deadline()

    def exit_code(self) -> int:
        """Wait for the end; 255 for a command that a signal ended, as ssh(1) says it.

        Raises Broken when the connection ended first, so that nobody can know.
        """
        self._channel.status_event.wait(self._deadline.remaining_s)
        self._check_deadline()
        code = self._channel.exit_status
        if code == -1:  # the channel was closed without one: by the server for `exit-signal`, or by the link's end
            if not self._channel.get_transport().is_active():
                raise Broken("the link is gone")
            return KILLED
        return code

    def last_stderr(self) -> bytes:
        """Let a program that has said its last word end by itself, for a moment; what it left on stderr."""
        self._channel.status_event.wait(min(LAST_WORD_S, self._deadline.remaining_s))
        return self._channel.recv_stderr(CHUNK_BYTES) if self._channel.recv_stderr_ready() else b""

    def _check_deadline(self) -> None:
        if self._deadline.is_over:
            code = self._channel.exit_status
            raise Expired(code if code != -1 else None)


@contextlib.contextmanager
def closes_at(channel: paramiko.Channel, deadline: Deadline) -> Iterator[None]:
    """Close the channel when the deadline passes; when that does not help within seconds, the whole connection."""
    done = threading.Event()

    def watch() -> None:
        if done.wait(deadline.remaining_s):
            return
        # In a thread of its own, as closing sends a message, which may be what hangs.
        threading.Thread(target=channel.close, daemon=True).start()
        if not done.wait(GRACE_S):
            channel.get_transport().close()

    threading.Thread(target=watch, name="deadline", daemon=True).start()
    try:
        yield
    finally:
        done.set()
