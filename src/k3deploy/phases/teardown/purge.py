"""Purge (only when asked for): the model's folder in the cache, and the rest of a cache that only the run used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.holdings import Holdings, model_folders
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.units import bytes_text
from k3deploy.phases.teardown.site import TeardownSite

# Unlinking 96 files of 17 GB takes ext4 and XFS seconds, a busy disk minutes.
_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class PurgeWeights:
    node: NodeName
    hf_home: str
    models: tuple[str, ...]
    folder: str

    def perform(self, svc: Services, progress: Progress) -> None:
        args = {"hf_home": self.hf_home, "models": list(self.models), "folder": self.folder}
        gone = svc.nodes[self.node].call(Program("weights_purge", args, sudo=True, timeout_s=_TIMEOUT_S))
        progress(f"{bytes_text(gone['freed_bytes'])} freed")


@dataclass(frozen=True)
class WeightsPurgePhase:
    site: TeardownSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("weights-purge")

    @property
    def title(self) -> str:
        return "Remove the weights"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("engine-remove"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.holdings_question,))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self.site.digest

    def probe(self, svc: Services, target: Target) -> Holdings:
        return self.site.held(svc, target.nodes[0])

    def plan(self, target: Target, seen: Holdings) -> Plan:
        if seen.weights_bytes is None:
            return Plan.noop("the model is not in the cache")
        profile = self.site.profile
        action = PurgeWeights(target.nodes[0], profile.storage.hf_home, model_folders(profile), self.site.folder.path)
        return Plan.of(Step(f"remove {bytes_text(seen.weights_bytes)} of weights in {seen.weights_path}", action))

    def verify(self, svc: Services, target: Target) -> Verdict:
        left = self.site.held(svc, target.nodes[0])
        if left.weights_bytes is not None:
            return Verdict.bad(
                f"{bytes_text(left.weights_bytes)} of weights are still in {left.weights_path}",
                why="something wrote there again, or could not be removed",
                fix="look at what uses the folder (`sudo fuser -v` on the node), then run the same command again",
            )
        return Verdict.ok("no weights of this model in the cache")
