"""Manifest: the Hub's list of files at the profile's commit, asked for once per run and required on every node.

So all nodes have the same commit although the branch may move meanwhile, and no node asks the Hub what is right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import HubError, ProfileError
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.profile.models import Model
from k3deploy.domain.steps import Plan, Step, Target, TargetKind, Verdict
from k3deploy.domain.units import bytes_text
from k3deploy.domain.weights import Manifest, check_manifest
from k3deploy.phases.node_site import NodeSite

MANIFEST_PIN: Final = "manifest"


@dataclass(frozen=True)
class SettleManifest:
    """Write it to the run's pins. Another process may have been first: then its value counts, and must agree too."""

    manifest: Manifest
    model: Model

    def perform(self, svc: Services, progress: Progress) -> None:
        settled = Manifest.from_dict(svc.pins.settle(MANIFEST_PIN, self.manifest.as_dict()))
        require(settled, self.model)
        progress(f"{len(settled.files)} files, {bytes_text(settled.total_bytes)}")


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
        return digest_of(repo=model.repo, revision=model.revision, shards=model.shards, shard_bytes=model.shard_bytes)

    def probe(self, svc: Services, target: Target) -> Manifest | None:
        """The list, where the run has none yet. Raises HubError."""
        model = self.site.profile.model
        return None if pinned(svc) is not None else svc.hub.manifest(model.repo, model.revision)

    def plan(self, target: Target, seen: Manifest | None) -> Plan:
        """Raises ProfileError when the Hub has something else than the profile expects."""
        model = self.site.profile.model
        if seen is None:
            return Plan.noop("this run has its list")
        check_manifest(seen, model)
        return Plan.of(
            Step(
                f"settle on {model.repo} at {seen.commit[:12]}",
                SettleManifest(seen, model),
                detail=f"{len(seen.files)} files, {bytes_text(seen.total_bytes)}, {len(seen.shards)} shards; "
                "every node of this run must have exactly these",
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        """Raises ProfileError when the profile was changed since the run settled on a list."""
        manifest = pinned(svc)
        if manifest is None:
            return Verdict.bad("the run has no list of files yet", fix="run the same command again")
        require(manifest, self.site.profile.model)
        return Verdict.ok(
            f"{manifest.repo} at {manifest.commit[:12]}, {len(manifest.files)} files",
            commit=manifest.commit,
            files=len(manifest.files),
            bytes=manifest.total_bytes,
            manifest=manifest.digest,
        )


def pinned(svc: Services) -> Manifest | None:
    """The list that this run settled on."""
    body = svc.pins.get(MANIFEST_PIN)
    return None if body is None else Manifest.from_dict(body)


def need_pinned(svc: Services) -> Manifest:
    """For phases that come after this one. Raises HubError where the run has not got that far."""
    manifest = pinned(svc)
    if manifest is None:
        raise HubError(
            what="this run has no list of the model's files yet",
            why="the Hub was not asked, or gave none",
            fix="run `k3deploy up` again: it asks for the list first",
        )
    return manifest


def require(manifest: Manifest, model: Model) -> None:
    """Raise ProfileError unless a run's list is still the one that the profile asks for."""
    if (manifest.repo, manifest.commit) != (model.repo, model.revision):
        raise ProfileError(
            what="this run holds another model than the profile names",
            why="all nodes of a run have the same files, so a run keeps what it settled on",
            fix="put the profile back, or `k3deploy teardown --confirm` and then `k3deploy up`: a new run",
            context={
                "found": f"{manifest.repo} at {manifest.commit}",
                "wanted": f"{model.repo} at {model.revision}",
            },
        )
    check_manifest(manifest, model)
