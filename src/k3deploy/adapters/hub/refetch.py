"""One file fetched anew with huggingface_hub on this machine: into a cache, or into a folder of plain files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from k3deploy.adapters.hub.client import HuggingFace
from k3deploy.domain.errors import NodeError
from k3deploy.domain.weights import Manifest

Count = Callable[[int], None]


class Refetch:
    """Implements `flows.verify_local.Refetch` for one folder: `cache` is the folder above models--..., or None."""

    def __init__(self, hub: HuggingFace, folder: Path, cache: Path | None) -> None:
        self._hub = hub
        self._place: dict[str, Any] = {"local_dir": folder} if cache is None else {"cache_dir": cache}

    def fetch(self, manifest: Manifest, path: str, count: Count) -> None:
        """See there."""
        from httpx2 import HTTPError
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import OfflineModeIsEnabled

        token = self._hub.token()

        def request() -> None:
            try:
                hf_hub_download(
                    manifest.repo,
                    path,
                    revision=manifest.commit,
                    endpoint=self._hub.node_environment().get("HF_ENDPOINT"),
                    token=token.reveal() if token else False,
                    force_download=True,  # else it takes the bad bytes again from the store that repositories share
                    tqdm_class=_counting(count),
                    **self._place,
                )
            except ValueError as error:  # it wraps what the Hub answered
                if isinstance(error.__cause__, HTTPError | OfflineModeIsEnabled):
                    raise error.__cause__ from None
                raise

        try:
            self._hub.ask(manifest.repo, manifest.commit, request)
        except OSError as error:
            raise NodeError(
                what=f"{path} could not be written",
                why=str(error),
                fix="free space on that disk, then run the same command again: only what is bad is fetched",
                context={"path": str(error.filename or "")},
            ) from error


def _counting(count: Count) -> Any:
    """What the client takes for a progress bar."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        """Draws nothing: the console has a bar of its own."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call] # the library's

        def update(self, n: float | None = 1) -> None:
            count(int(n or 0))

    return Bar
