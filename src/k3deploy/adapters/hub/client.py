"""The model hub through huggingface_hub: one call gives a revision's files with sizes and digests.

huggingface_hub is loaded only when something is asked: it takes 300 ms.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from k3deploy.domain.command import Secret
from k3deploy.domain.errors import HubError
from k3deploy.domain.manifest_rules import RULES, what_is_wrong
from k3deploy.domain.names import Commit, Sha256
from k3deploy.domain.weights import Manifest, ManifestFile

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

TIMEOUT_S = 30.0
TRIES = 3
LONGEST_WAIT_S = 60.0

Answer = TypeVar("Answer")


class HuggingFace:
    """Implements `contracts.Hub`. The operator's settings are huggingface_hub's own: HF_ENDPOINT, HF_TOKEN,
    HF_TOKEN_PATH, `hf auth login`.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        read_login: Callable[[], str | None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`read_login` gives the token of a login on this machine; by default huggingface_hub's own `get_token`."""
        self._environment = os.environ if environment is None else environment
        self._read_login = read_login or _read_login
        self._sleep = sleep

    def manifest(self, repo: str, revision: str) -> Manifest:
        """See the contract. For a gated repository one more call checks that this account may read files."""
        from huggingface_hub import HfApi, hf_hub_url

        from k3deploy.adapters.hub import failures

        token = self.token()
        api = HfApi(endpoint=self._endpoint(), token=token.reveal() if token else False)
        info = self.ask(
            repo,
            revision,
            lambda: api.model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT_S),
        )
        if info.id != repo:  # a renamed repository answers under its new name
            raise failures.renamed(repo, info.id)
        manifest = _manifest(repo, info)
        if info.gated:
            # The list of files is public, the files are not: better to know now than from every node.
            url = hf_hub_url(repo, manifest.files[0].path, revision=manifest.commit, endpoint=self._endpoint())
            self.ask(repo, revision, lambda: api.get_hf_file_metadata(url=url, timeout=TIMEOUT_S))
        return manifest

    def node_environment(self) -> Mapping[str, str]:
        """See the contract. Raises HubError for an HF_ENDPOINT that is no plain http or https address."""
        endpoint = self._endpoint()
        return {} if endpoint is None else {"HF_ENDPOINT": endpoint}

    def token(self) -> Secret | None:
        """See the contract: HF_TOKEN, else the file at HF_TOKEN_PATH, else the one of `hf auth login`."""
        text = self._environment.get("HF_TOKEN", "").strip()
        text = text or (self._read_login() or "").strip()
        return Secret(text) if text else None

    def _endpoint(self) -> str | None:
        url = self._environment.get("HF_ENDPOINT", "").strip().rstrip("/")
        if not url:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise HubError(
                what="HF_ENDPOINT is not the address of a hub",
                why="it is used on the nodes as well, so it must be http://HOST or https://HOST without a login",
                fix="correct it, or unset it to use huggingface.co",
                context={"found": parts._replace(netloc=parts.hostname or "").geturl()},
            )
        return url

    def ask(self, repo: str, revision: str, request: Callable[[], Answer]) -> Answer:
        """Too many requests and server errors are tried again, after as long as the server says."""
        from httpx2 import HTTPError
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        from k3deploy.adapters.hub import failures

        for attempt in range(1, TRIES + 1):
            try:
                return request()
            except (HTTPError, OfflineModeIsEnabled) as err:
                wait_s = failures.retry_after_s(err, attempt) if isinstance(err, HfHubHTTPError) else None
                if wait_s is None or wait_s > LONGEST_WAIT_S or attempt == TRIES:
                    raise failures.explain(err, repo, revision, has_token=self.token() is not None) from err
                self._sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")


def _read_login() -> str | None:
    from huggingface_hub import get_token
    from huggingface_hub.errors import DeviceCodeError, OIDCError

    try:
        return get_token()
    except (OIDCError, DeviceCodeError) as err:
        raise HubError(
            what="the Hugging Face login cannot be used",
            why=str(err),
            fix="log in again: hf auth login (or set HF_TOKEN)",
        ) from err


def _manifest(repo: str, info: "ModelInfo") -> Manifest:
    siblings = info.siblings or []
    if not siblings or not info.sha or any(each.size is None or each.blob_id is None for each in siblings):
        raise HubError(
            what=f"the hub gives no sizes and digests for {repo}",
            why="a mirror may lack them, and without them the weights cannot be proved right",
            fix="unset HF_ENDPOINT to use huggingface.co, or use a complete mirror",
            context={"repo": repo, "files": len(siblings)},
        )
    files = sorted((_file(each) for each in siblings), key=lambda file: file.path)
    manifest = Manifest(repo, Commit(info.sha), tuple(files))
    if (wrong := what_is_wrong(manifest)) is not None:
        raise HubError(
            what=f"the hub lists what no repository can have: {wrong}",
            why=RULES,
            fix="unset HF_ENDPOINT to use huggingface.co, or tell whoever runs that mirror",
            context={"repo": repo},
        )
    return manifest


def _file(sibling: "RepoSibling") -> ManifestFile:
    large: Any = sibling.lfs
    return ManifestFile(
        path=sibling.rfilename,
        size_bytes=int(sibling.size or 0),
        sha256=Sha256(large.sha256) if large is not None else None,
        git_blob_id=str(sibling.blob_id),
    )
