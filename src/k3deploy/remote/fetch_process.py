"""A download process as its parent sees it: start, give work, hear what it says, notice that it stands still, kill."""

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any, NamedTuple

from k3deploy.remote.hub_cache import Repository, Wanted

# Passed on where the node has them: how to get out of this network.
_PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")

_END_WITHIN_S = 10.0
# Compiling and importing the client takes a second or two, more on a machine that is busy pulling an image.
_READY_WITHIN_S = 60.0


class Settings(NamedTuple):
    """What every download process of one fetch shares. `token` goes by stdin, never by environment or argv."""

    script: str
    client: str
    hf_home: str
    repo: str
    commit: str
    token: str | None
    environment: dict[str, str]


class FetchProcess:
    """One running worker. `files` are those in its hands, by path."""

    def __init__(self, settings: Settings, repository: Repository, *, threads: int, has_xet: bool) -> None:
        self.has_xet = has_xet
        self.threads = threads
        self.files: dict[str, Wanted] = {}
        self.is_ready = False
        self._repository = repository
        self._amount = -1
        self._moved_at = time.monotonic()
        self._patient_until = time.monotonic() + _READY_WITHIN_S
        self._heard = b""
        self.fault = ""
        self._process = subprocess.Popen(
            [sys.executable or "python3", "-I", settings.script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(settings, has_xet=has_xet),
            cwd="/",
        )
        self._send(
            {
                "client": settings.client,
                "repo": settings.repo,
                "commit": settings.commit,
                "cache_dir": repository.hub,
                "token": settings.token,
                "threads": threads,
            }
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """For `select`: readable when there is something to hear."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def give(self, file: Wanted) -> None:
        if not self.files:
            self._moved_at = time.monotonic()
        self.files[file.path] = file
        self._send(file.path)

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
        """The Hub asked for a pause: standing still is right until then."""
        self._patient_until = max(self._patient_until, time.monotonic() + seconds)

    def partial_bytes(self) -> int:
        """What has landed of the files in hand."""
        total = 0
        for path in self._partials():
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)
                # A client may reserve the whole length first; blocks count what was written (delayed ones included).
                total += min(status.st_size, status.st_blocks * 512)
        return total

    def idle_s(self) -> float:
        """How long nothing was heard and nothing has grown; 0 without work. It looks at the disk: call it often."""
        amount = self.partial_bytes()
        now = time.monotonic()
        if amount != self._amount or not self.files:
            self._amount = amount
            self._moved_at = now
        return max(0.0, now - max(self._moved_at, self._patient_until))

    def kill(self) -> list[Wanted]:
        """End it whatever it does, remove what it left half-done, and return the files it had in hand."""
        self._process.kill()
        self._close()
        for path in self._partials():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        files = list(self.files.values())
        self.files = {}
        return files

    @property
    def exit_code(self) -> "int | None":
        return self._process.poll()

    def _close(self) -> None:
        # A process that waits for a broken disk outlives SIGKILL for a while; we do not wait for it.
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.communicate(timeout=_END_WITHIN_S)

    def _send(self, body: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: `hear` will say so
            self._process.stdin.write(json.dumps(body).encode() + b"\n")
            self._process.stdin.flush()

    def _partials(self) -> list[str]:
        digests = {file.digest for file in self.files.values()}
        return [self._repository.blob(name) for name in self._repository.partials() if name.split(".", 1)[0] in digests]


def _environment(settings: Settings, *, has_xet: bool) -> dict[str, str]:
    """The client's switches (huggingface_hub 2.4, hf-xet 1.8). HF_HUB_ENABLE_HF_TRANSFER has no effect since 1.0."""
    passed_on = {name: os.environ[name] for word in _PASSED_ON for name in (word, word.lower()) if name in os.environ}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", "/"),
        "LC_ALL": "C",
        **passed_on,
        "HF_HOME": settings.hf_home,
        # Else blobs are links into a store named by another hash, and a container that mounts one repository sees none.
        "HF_HUB_DISABLE_SHARED_BLOBS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_ETAG_TIMEOUT": "30",
        "HF_HUB_DOWNLOAD_TIMEOUT": "30",
        "HF_XET_HIGH_PERFORMANCE": "1",
        "HF_XET_CHUNK_CACHE_SIZE_BYTES": "0",  # the chunk cache would hold a second copy of what is written
        **({} if has_xet else {"HF_HUB_DISABLE_XET": "1"}),
        **settings.environment,
    }
