"""A Hub that knows the manifests it was given."""

from collections.abc import Mapping

from k3deploy.domain.command import Secret
from k3deploy.domain.errors import HubError, K3Error
from k3deploy.domain.weights import Manifest


class FakeHub:
    """Knows the manifests given; `error` set makes every look-up fail with it. `asked` keeps the look-ups.

    A manifest answers for its commit, and for `main` when it is the first one of its repository.
    """

    def __init__(
        self, *manifests: Manifest, token: Secret | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._manifests: dict[tuple[str, str], Manifest] = {}
        self._token = token
        self._environment = dict(environment or {})
        self.error: K3Error | None = None
        self.asked: list[tuple[str, str]] = []
        for manifest in manifests:
            self._manifests[manifest.repo, manifest.commit] = manifest
            self._manifests.setdefault((manifest.repo, "main"), manifest)

    def manifest(self, repo: str, revision: str) -> Manifest:
        self.asked.append((repo, revision))
        if self.error is not None:
            raise self.error
        found = self._manifests.get((repo, revision))
        if found is None:
            raise HubError(
                what=f"the hub has no {repo} at {revision}",
                why="the repository or the revision does not exist, or this account may not see it",
                fix="check model.repo and model.revision in the profile",
                context={"repo": repo, "revision": revision},
            )
        return found

    def node_environment(self) -> Mapping[str, str]:
        return dict(self._environment)

    def token(self) -> Secret | None:
        return self._token
