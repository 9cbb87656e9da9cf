"""Manifest: the Hub's list of files at the profile's commits, asked for once per run and required on every node.

So all nodes have the same commit although the branch may move meanwhile, and no node asks the Hub what is right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import HubError, ProfileError
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.profile.models import Model
from k3deploy.domain.steps import Plan, Step, Target, TargetKind, Verdict
from k3deploy.domain.units import bytes_text
from k3deploy.domain.weights import Manifest, check_manifests, wanted_repositories
from k3deploy.phases.node_site import NodeSite

MANIFEST_PIN: Final = "manifest"


# The model's manifest, and that of its draft where the profile names one.
Manifests = tuple[Manifest, ...]


@dataclass(frozen=True)
class SettleManifests:
    """Write them to the run's pins. Another process may have been first: then its value counts, and must agree too."""

    manifests: Manifests
    model: Model

    def perform(self, svc: Services, progress: Progress) -> None:
        body = {"manifests": [manifest.as_dict() for manifest in self.manifests]}
        settled = _parsed(svc.pins.settle(MANIFEST_PIN, body))
        require(settled, self.model)
        progress(_size_text(settled))


@dataclass(frozen=True)
class ManifestPhase:
    site: NodeSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("manifest")

    @property
    def title(self) -> str:
        return "Ask the Hub for the list of files"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return ()

    def targets(self) -> Sequence[Target]:
        return (Target(TargetKind.RUN, "run", self.site.topology.nodes),)

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return {}

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        model = self.site.profile.model
        return digest_of(repositories=wanted_repositories(model), shards=model.shards, shard_bytes=model.shard_bytes)

    def probe(self, svc: Services, target: Target) -> Manifests:
        """The lists, where the run has none yet. Raises HubError."""
        if pinned(svc):
            return ()
        return tuple(svc.hub.manifest(*each) for each in wanted_repositories(self.site.profile.model))

    def plan(self, target: Target, seen: Manifests) -> Plan:
        """Raises ProfileError when the Hub has something else than the profile expects."""
        model = self.site.profile.model
        if not seen:
            return Plan.noop("this run has its list")
        check_manifests(seen, model)
        names = " and ".join(f"{manifest.repo} at {manifest.commit[:12]}" for manifest in seen)
        return Plan.of(
            Step(
                f"settle on {names}",
                SettleManifests(seen, model),
                detail=f"{_size_text(seen)}, {sum(len(manifest.shards) for manifest in seen)} shards; "
                "every node of this run must have exactly these",
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        """Raises ProfileError when the profile was changed since the run settled on a list."""
        manifests = pinned(svc)
        if not manifests:
            return Verdict.bad("the run has no list of files yet", fix="run the same command again")
        require(manifests, self.site.profile.model)
        return Verdict.ok(
            f"{manifests[0].repo} at {manifests[0].commit[:12]}, {_size_text(manifests)}",
            commit=manifests[0].commit,
            files=sum(len(manifest.files) for manifest in manifests),
            bytes=sum(manifest.total_bytes for manifest in manifests),
            manifest=[manifest.digest for manifest in manifests],
        )


def pinned(svc: Services) -> Manifests:
    """The lists that this run settled on, the model's first; empty before it has."""
    body = svc.pins.get(MANIFEST_PIN)
    return () if body is None else _parsed(body)


def need_pinned(svc: Services) -> Manifests:
    """For phases that come after this one. Raises HubError where the run has not got that far."""
    manifests = pinned(svc)
    if not manifests:
        raise HubError(
            what="this run has no list of the model's files yet",
            why="the Hub was not asked, or gave none",
            fix="run `k3deploy up` again: it asks for the list first",
        )
    return manifests


def require(manifests: Manifests, model: Model) -> None:
    """Raise ProfileError unless a run's lists are still those that the profile asks for."""
    found = tuple((manifest.repo, str(manifest.commit)) for manifest in manifests)
    wanted = wanted_repositories(model)
    if found != wanted:
        raise ProfileError(
            what="this run holds another model than the profile names",
            why="all nodes of a run have the same files, so a run keeps what it settled on",
            fix="put the profile back, or `k3deploy teardown --confirm` and then `k3deploy up`: a new run",
            context={"found": _named(found), "wanted": _named(wanted)},
        )
    check_manifests(manifests, model)


def _parsed(body: Mapping[str, Any]) -> Manifests:
    return tuple(Manifest.from_dict(each) for each in body["manifests"])


def _size_text(manifests: Manifests) -> str:
    files = sum(len(manifest.files) for manifest in manifests)
    return f"{files} files, {bytes_text(sum(manifest.total_bytes for manifest in manifests))}"


def _named(repositories: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{repo} at {commit}" for repo, commit in repositories)
