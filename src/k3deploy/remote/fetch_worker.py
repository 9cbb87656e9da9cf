"""One process that downloads files with huggingface_hub, as told on its stdin. It can be killed at any moment.

It is a process of its own because a transfer can hang inside the client's native code, where no timeout reaches it.
It ends when its stdin ends, so none is left behind whatever happens to its parent.
"""

import errno
import json
import os
import queue
import sys
import threading
from typing import Any

from k3deploy.remote.protocol import Say

# Waited after 429 when the Hub does not say for how long, and the longest wait we believe (its windows are 300 s).
_RATE_LIMIT_S = 60.0
_LONGEST_RATE_LIMIT_S = 600.0
_MESSAGE_CHARACTERS = 400

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISK_FULL = "disk-full"
DISK_DENIED = "disk-denied"
NO_ACCESS = "no-access"
ABSENT = "absent"
RETRY = "retry"


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """stdin: one line of settings (client, repo, commit, cache_dir, token, threads), then one path of the repo a line.

    Says {"ready": true} once, {"file": path, "failure": None or {kind, text, wait_s}} for each path, and
    {"wait_s": n} when the Hub asked for patience while a transfer goes on.
    """
    settings = json.loads(sys.stdin.readline())
    # The client's folder is ours and outlives this process: compiled modules save a second at each start.
    sys.dont_write_bytecode = False
    sys.path.insert(0, settings["client"])
    lock = threading.Lock()

    def tell(word: dict[str, Any]) -> None:
        with lock:
            say(word)

    download = _Download(settings, tell)
    paths: queue.SimpleQueue[str] = queue.SimpleQueue()
    for _ in range(settings["threads"]):
        threading.Thread(target=_serve, args=(paths, download, tell), daemon=True).start()
    tell({"ready": True})
    for line in sys.stdin:
        paths.put(json.loads(line))
    # Our parent is gone, or has had enough. A transfer in hand cannot be stopped politely.
    os._exit(0)


def _serve(paths: "queue.SimpleQueue[str]", download: "_Download", tell: Say) -> None:
    while True:
        path = paths.get()
        tell({"file": path, "failure": download(path)})


class _Download:
    """Downloads one file; returns None, or what went wrong by class, never by the text of a message."""

    def __init__(self, settings: dict[str, Any], tell: Say) -> None:
        # Here and not above: the client is found once its folder is on sys.path.
        from huggingface_hub import hf_hub_download, set_client_factory
        from huggingface_hub.utils._http import default_client_factory

        def factory() -> Any:
            client = default_client_factory()
            hooks = client.event_hooks
            hooks["response"].append(lambda response: _notice_rate_limit(response, tell))
            client.event_hooks = hooks
            return client

        set_client_factory(factory)
        self._fetch = hf_hub_download
        self._settings = settings

    def __call__(self, path: str) -> "dict[str, Any] | None":
        s = self._settings
        try:
            # token=False: never fall back to a token that somebody left on the node.
            self._fetch(s["repo"], path, revision=s["commit"], cache_dir=s["cache_dir"], token=s["token"] or False)
        except Exception as error:  # noqa: BLE001 - whatever the client raises ends this file only, and is classified
            return _failure(error)
        return None


def _failure(error: BaseException) -> dict[str, Any]:
    cause = error
    # "Cannot find the file in the cache" only hides why the Hub could not be asked.
    while type(cause).__name__ == "LocalEntryNotFoundError" and cause.__cause__ is not None:
        cause = cause.__cause__
    response = getattr(cause, "response", None)
    wait_s = _wait_s(response.headers) if response is not None and response.status_code == 429 else 0.0
    text = f"{type(cause).__name__}: {cause}"[:_MESSAGE_CHARACTERS]
    return {"kind": _kind(cause), "text": text, "wait_s": wait_s}


def _kind(error: BaseException) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.RepositoryNotFoundError):  # gated repositories included
        return NO_ACCESS
    if isinstance(error, errors.RevisionNotFoundError | errors.RemoteEntryNotFoundError):
        return ABSENT
    if isinstance(error, errors.HfHubHTTPError):
        return NO_ACCESS if error.response.status_code in (401, 403) else RETRY
    number = getattr(error, "errno", None)
    if number in DISK_FULL_ERRNOS:
        return DISK_FULL
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DISK_DENIED
    return RETRY


def _notice_rate_limit(response: Any, tell: Say) -> None:
    if response.status_code == 429:
        tell({"wait_s": _wait_s(response.headers)})


def _wait_s(headers: Any) -> float:
    """Seconds the Hub asks for: `Retry-After: n`, or `t=n` in its `RateLimit` header."""
    asked = headers.get("Retry-After", "")
    for part in headers.get("RateLimit", "").split(";"):
        if not asked and part.strip().startswith("t="):
            asked = part.strip()[2:]
    try:
        return min(float(asked), _LONGEST_RATE_LIMIT_S)
    except ValueError:
        return _RATE_LIMIT_S
