"""Weights-fetch: every file of the run's manifest is on the node with its right size, fetched from the Hub detached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import HubError, ProgramFailed
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.units import bytes_text
from k3deploy.domain.weights_found import WeightsFound
from k3deploy.phases.detached import DetachedJob, follow_job
from k3deploy.phases.manifest import need_pinned
from k3deploy.phases.weights_site import WeightsSite

# Shards in flight on a node. Xet already fetches each one over many connections, and a killed client loses what it
# had in hand: 4 keep that below 70 GB and fill the link all the same.
IN_FLIGHT: Final = 4
WAIT_BASE_S: Final = 1.0
# The job says something several times a second; this long without a word, its own process hangs.
SILENT_S: Final = 300.0
# The share of the profile's margin that must stay free while files come in: others write to this disk too.
FLOOR_SHARE: Final = 10


@dataclass(frozen=True)
class FetchWeights:
    """Run the fetch as a detached job. The token travels on stdin and is in no file while the job runs."""

    node: NodeName
    run: str
    folder: str
    hf_home: str
    client: str
    floor_bytes: int
    stall_s: float
    timeout_s: float

    def perform(self, svc: Services, progress: Progress) -> None:
        folder = f"{self.folder}/weights-fetch"
        token = svc.hub.token()
        job = DetachedJob(
            node=self.node,
            id=f"{self.run}-weights-fetch",
            folder=folder,
            entry="fetch",
            args={
                "hf_home": self.hf_home,
                "manifest": need_pinned(svc).as_dict(),
                "client": self.client,
                "environment": dict(svc.hub.node_environment()),
                "in_flight": IN_FLIGHT,
                "stall_s": self.stall_s,
                "floor_bytes": self.floor_bytes,
                "scratch": folder,
                "wait_base_s": WAIT_BASE_S,
            },
            silent_s=SILENT_S,
            timeout_s=self.timeout_s,
            secrets={} if token is None else {"hf_token": token},
        )
        try:
            follow_job(svc, job, progress)
        except ProgramFailed as err:
            if err.context.get("kind") != "hub":
                raise
            raise HubError(what=f"{self.node}: {err.what}", why=err.why, fix=err.fix, context=err.context) from err


@dataclass(frozen=True)
class WeightsFetchPhase:
    site: WeightsSite
    client_lock: str

    @property
    def name(self) -> PhaseName:
        return PhaseName("weights-fetch")

    @property
    def title(self) -> str:
        return "Fetch the weights"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("client"), PhaseName("manifest"))

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return self.site.weights_questions(svc, target)

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self.site.weights_inputs(svc, target)

    def probe(self, svc: Services, target: Target) -> WeightsFound:
        return self.site.weights(svc, target.nodes[0])

    def plan(self, target: Target, seen: WeightsFound) -> Plan:
        profile, node = self.site.profile, target.nodes[0]
        stale = seen.stale_partials
        if not seen.missing and not stale:
            return Plan.noop(f"all {seen.files} files are there")
        if not seen.missing:
            title = f"remove {len(stale)} leftovers of killed downloads ({bytes_text(seen.stale_bytes)})"
        else:
            title = f"fetch {len(seen.missing)} of {seen.files} files ({bytes_text(seen.missing_bytes)})"
        storage = profile.storage
        return Plan.of(
            Step(
                title,
                FetchWeights(
                    node=node,
                    run=str(self.site.run),
                    folder=self.site.folder.jobs,
                    hf_home=storage.hf_home,
                    client=self.site.folder.client(self.client_lock),
                    floor_bytes=storage.margin_bytes // FLOOR_SHARE,
                    stall_s=profile.timeouts.weights_stall_s,
                    timeout_s=profile.timeouts.weights_fetch_s,
                ),
                detail=f"{profile.model.repo} at {profile.model.revision} into {storage.hf_home}",
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        seen = self.site.weights(svc, target.nodes[0])
        if seen.missing:
            first = seen.missing[0]
            return Verdict.bad(
                f"{len(seen.missing)} of {seen.files} files are not right, first {first.path}",
                fix="run the same command again: only these are fetched",
                found=first.found,
                wanted=first.wanted,
            )
        return Verdict.ok(
            f"{seen.files} files, {bytes_text(seen.total_bytes)}", files=seen.files, bytes=seen.total_bytes
        )
