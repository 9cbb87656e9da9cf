"""One process that downloads files with huggingface_hub, as told on its stdin (see transfer_worker)."""

import sys
from typing import Any

from k3deploy.remote.fetch_failure import ABSENT, NO_ACCESS, RETRY, failure, kind_of
from k3deploy.remote.hub_cache import Repository
from k3deploy.remote.protocol import Say
from k3deploy.remote.transfer_worker import StoppedHere, Task, read_settings, serve_tasks, telling

ENTRY = "fetch_worker"

# Waited after 429 when the Hub does not say for how long, and the longest wait we believe (its windows are 300 s).
_RATE_LIMIT_S = 60.0
_LONGEST_RATE_LIMIT_S = 600.0
# The client's own pieces of 10 MiB show a slow transfer's progress, and let it be stopped, only now and then.
_PIECE_BYTES = 1 << 20


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """stdin: one line of settings (client, hf_home, repo, commit, token, threads), then tasks."""
    settings = read_settings()
    # The client's folder is ours and outlives this process: compiled modules save a second at each start.
    sys.dont_write_bytecode = False
    sys.path.insert(0, settings["client"])
    tell = telling(say)
    serve_tasks(_Download(settings, tell), settings["threads"], tell)


class _Download:
    """Downloads one file and proves it. What goes wrong is told by class, never by the text of a message."""

    def __init__(self, settings: dict[str, Any], tell: Say) -> None:
        # Here and not above: the client is found once its folder is on sys.path.
        from huggingface_hub import constants, hf_hub_download, set_client_factory
        from huggingface_hub.utils._http import default_client_factory

        def factory() -> Any:
            client = default_client_factory()
            hooks = client.event_hooks
            hooks["response"].append(lambda response: _notice_rate_limit(response, tell))
            client.event_hooks = hooks
            return client

        set_client_factory(factory)
        constants.DOWNLOAD_CHUNK_SIZE = _PIECE_BYTES
        self._fetch = hf_hub_download
        self._settings = settings
        self._repository = Repository(settings["hf_home"], settings["repo"], settings["commit"])

    def __call__(self, task: Task) -> dict[str, Any]:
        s = self._settings
        try:
            self._fetch(
                s["repo"],
                task.file.path,
                revision=s["commit"],
                cache_dir=self._repository.hub,
                token=s["token"] or False,  # never fall back to a token that somebody left on the node
                tqdm_class=_watching(task),
            )
        except StoppedHere:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the client raises ends this file only, and is classified
            return {"failure": _failure(error)}
        task.landed()
        return task.prove(self._repository.link(task.file.path))


def _watching(task: Task) -> "type[Any]":
    """The client's own progress bar (switched off by the environment), which it moves for each piece that came."""
    from huggingface_hub.utils.tqdm import tqdm

    class Watching(tqdm):  # type: ignore[misc, type-arg, unused-ignore]  # the client is not there for a type checker
        def update(self, n: float | None = 1) -> Any:
            task.go_on()
            return super().update(n)

    return Watching


def _failure(error: BaseException) -> dict[str, Any]:
    cause = error
    # "Cannot find the file in the cache" only hides why the Hub could not be asked.
    while type(cause).__name__ == "LocalEntryNotFoundError" and cause.__cause__ is not None:
        cause = cause.__cause__
    response = getattr(cause, "response", None)
    wait_s = _wait_s(response.headers) if response is not None and response.status_code == 429 else 0.0
    return failure(_kind(cause), f"{type(cause).__name__}: {cause}", wait_s)


def _kind(error: BaseException) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.RepositoryNotFoundError):  # gated repositories included
        return NO_ACCESS
    if isinstance(error, errors.RevisionNotFoundError | errors.RemoteEntryNotFoundError):
        return ABSENT
    if isinstance(error, errors.HfHubHTTPError):
        return NO_ACCESS if error.response.status_code in (401, 403) else RETRY
    return kind_of(error)


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
