"""The folder of a detached job: what each file in it means, and whether the job is alive (it holds a lock for life)."""

import contextlib
import errno
import fcntl
import json
import os
import time
from typing import Any

# Held by a file of the job's own for as long as it runs.
_ROOM_BYTES = 16384
# How many of the log's last lines an explanation carries.
_LOG_LINES = 12
_LOG_TAIL_BYTES = 16384


def write_atomically(path: str, text: str, *, mode: int = 0o600, outlives_power: bool = False) -> None:
    """Replace the file in one step: a reader sees the old or the new text, never half of one.

    With `outlives_power` that holds after a power cut too, which else may leave an empty file; it waits for the disk.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if outlives_power:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class JobFolder:
    """`args.json` and `job.py` start it, `progress.json` and `result.json` are what it says, `log` what it printed.

    `room` takes up what the result will need: a disk that is full must not keep a job from saying so.
    `alive` is locked by the job's own process for as long as it runs. So no process number has to be believed, a reboot
    needs no cleaning up, and a second copy of the same job ends at once.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def is_running(self) -> bool:
        """Whether some process holds the job's lock now."""
        try:
            descriptor = os.open(self.file("alive"), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def hold(self) -> int | None:
        """Take the job's lock for the life of this process; None when another process has it."""
        # Tried for a moment: `is_running` of somebody who is only looking holds it for microseconds.
        descriptor = os.open(self.file("alive"), os.O_RDWR | os.O_CREAT, 0o600)
        for _ in range(20):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
            else:
                return descriptor
        os.close(descriptor)
        return None

    def read(self, name: str) -> dict[str, Any] | None:
        """One of the JSON files, or None where it is absent or a power cut has emptied it."""
        try:
            with open(self.file(name), encoding="utf-8") as file:
                body = json.load(file)
        except (FileNotFoundError, ValueError):
            return None
        return body if isinstance(body, dict) else None

    def write(self, name: str, body: dict[str, Any]) -> None:
        write_atomically(self.file(name), json.dumps(body, separators=(",", ":")))

    def keep_room(self) -> None:
        """Take the space for the last word while there is some. Raises OSError where there is none."""
        descriptor = os.open(self.file("room"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(bytes(_ROOM_BYTES))

    def write_last(self, name: str, body: dict[str, Any]) -> None:
        """Write the last word, in the room that was kept if need be."""
        try:
            self.write(name, body)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self.remove("room")
            self.write(name, body)

    def remove(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.file(name))

    def state(self) -> str:
        """absent: never started · running · finished: has a result or an error · dead: ended without a word."""
        # The lock is looked at first: a job writes its result before it lets go.
        if self.is_running():
            return "running"
        if os.path.exists(self.file("result.json")):
            return "finished"
        return "dead" if os.path.exists(self.file("job.py")) else "absent"

    def progress_age_s(self) -> float:
        """Seconds since the job last said something (since it was started, before its first word)."""
        for name in ("progress.json", "job.py"):
            with contextlib.suppress(FileNotFoundError):
                return max(0.0, time.time() - os.stat(self.file(name)).st_mtime)
        return 0.0

    def log_tail(self) -> str:
        """The last lines of what the job printed, for an explanation."""
        try:
            with open(self.file("log"), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-_LOG_LINES:])
