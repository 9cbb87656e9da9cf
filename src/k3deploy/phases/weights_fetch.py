"""Weights-fetch: every file of the run's manifests is on the node with its right size, fetched as a detached job."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Question, Secret
from k3deploy.domain.errors import HubError, ProgramFailed
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.supply import Supply
from k3deploy.domain.units import bytes_text
from k3deploy.domain.weights import Manifest
from k3deploy.phases.detached import DetachedJob, follow_job, watch_job
from k3deploy.phases.one_volume import prove_one_volume
from k3deploy.phases.swarm import Membership, Swarm
from k3deploy.phases.weights_site import Held, WeightsSite

# Shards in flight on a node. Xet already fetches each one over many connections, and a killed client loses what it
# had in hand: 4 keep that below 70 GB and fill the link all the same. In a swarm everybody waits for the last shard
# in flight, so there are fewer.
IN_FLIGHT: Final = 4
IN_FLIGHT_SWARM: Final = 2
WAIT_BASE_S: Final = 1.0
# The job says something several times a second; this long without a word, its own process hangs.
SILENT_S: Final = 300.0
# The share of the profile's margin that must stay free while files come in: others write to this disk too.
FLOOR_SHARE: Final = 10


@dataclass(frozen=True)
class FetchWeights:
    """Run the fetch of one repository as a detached job. Secrets travel on stdin and are in no file while it runs."""

    node: NodeName
    manifest: Manifest
    name: str  # of the job
    site: WeightsSite
    client: str
    swarm: Swarm | None = field(default=None, compare=False)

    def perform(self, svc: Services, progress: Progress) -> None:
        if self.site.is_shared:
            prove_one_volume(svc, self.site)
        supply = svc.mirror.supply(self.manifest) if svc.mirror else _from_hub(svc)
        try:
            if self.swarm is None:
                follow_job(svc, self._job(supply, None), progress)
            else:
                self._take_part(svc, supply, self.swarm, progress)
        except ProgramFailed as err:
            if err.context.get("kind") != "hub":
                raise
            raise HubError(what=f"{self.node}: {err.what}", why=err.why, fix=err.fix, context=err.context) from err

    def _take_part(self, svc: Services, supply: Supply, swarm: Swarm, progress: Progress) -> None:
        member = swarm.member(svc, self.node, self.manifest)
        job = self._job(supply, member)
        swarm.begin(svc, self.manifest, job)
        with ThreadPoolExecutor(1, thread_name_prefix="wake") as background:
            # Not waited for: this node has enough to fetch from the Hub meanwhile.
            woken = background.submit(swarm.wake_holders, svc, self.manifest, even_again=member.is_late)
            watch_job(svc, job, progress)
        woken.result()

    def _job(self, supply: Supply, member: Membership | None) -> DetachedJob:
        profile, folder = self.site.profile, f"{self.site.folder.jobs}/{self.name}"
        secrets: dict[str, Secret] = dict(supply.secrets)
        if member is not None:
            secrets["swarm_token"] = member.token
        args: dict[str, Any] = {
            "hf_home": profile.storage.hf_home,
            "manifest": self.manifest.as_dict(),
            "client": self.client,
            "environment": dict(supply.environment),
            "origin": supply.origin,
            "strategy": "hub" if member is None else profile.weights.strategy,
            "swarm": None if member is None else dict(member.args),
            "in_flight": IN_FLIGHT if member is None else IN_FLIGHT_SWARM,
            "stall_s": profile.timeouts.weights_stall_s,
            "floor_bytes": profile.storage.margin_bytes // FLOOR_SHARE,
            "scratch": folder,
            "wait_base_s": WAIT_BASE_S,
        }
        return DetachedJob(
            node=self.node,
            id=f"{self.site.run}-{self.name}",
            folder=folder,
            entry="fetch",
            args=args,
            silent_s=SILENT_S,
            timeout_s=profile.timeouts.weights_fetch_s,
            secrets=secrets,
        )


def _from_hub(svc: Services) -> Supply:
    token = svc.hub.token()
    return Supply(environment=svc.hub.node_environment(), secrets={} if token is None else {"hf_token": token})


@dataclass(frozen=True)
class WeightsFetchPhase:
    site: WeightsSite
    client_lock: str
    swarm: Swarm | None = field(default=None, compare=False)

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

    def probe(self, svc: Services, target: Target) -> tuple[Held, ...]:
        return self.site.held(svc, target.nodes[0])

    def plan(self, target: Target, seen: tuple[Held, ...]) -> Plan:
        steps = [step for held in seen for step in self._steps(target.nodes[0], held)]
        if not steps:
            return Plan.noop(f"all {sum(held.found.files for held in seen)} files are there")
        return Plan.of(*steps)

    def verify(self, svc: Services, target: Target) -> Verdict:
        """On every node of the target: what the first one put on a shared volume, all must see."""
        for node in target.nodes:
            for held in self.site.held(svc, node):
                if held.found.missing:
                    first = held.found.missing[0]
                    return Verdict.bad(
                        f"{len(held.found.missing)} of {held.found.files} files are not right on {node}, "
                        f"first {first.path}",
                        fix="run the same command again: only these are fetched",
                        found=first.found,
                        wanted=first.wanted,
                    )
        found = [held.found for held in self.site.held(svc, target.nodes[0])]
        files, size_bytes = sum(each.files for each in found), sum(each.total_bytes for each in found)
        return Verdict.ok(f"{files} files, {bytes_text(size_bytes)}", files=files, bytes=size_bytes)

    def _steps(self, node: NodeName, held: Held) -> Iterator[Step]:
        seen, stale = held.found, held.found.stale_partials
        if seen.missing:
            title = f"fetch {len(seen.missing)} of {seen.files} files ({bytes_text(seen.missing_bytes)})"
        elif stale:
            title = f"remove {len(stale)} leftovers of killed downloads ({bytes_text(seen.stale_bytes)})"
        else:
            return
        profile, manifest = self.site.profile, held.manifest
        yield Step(
            title + (" of the draft model" if held.is_draft else ""),
            FetchWeights(
                node=node,
                manifest=manifest,
                name=held.job_name("weights-fetch"),
                site=self.site,
                client=self.site.folder.client(self.client_lock),
                swarm=self.swarm if seen.missing and self.site.is_swarm else None,
            ),
            detail=f"{manifest.repo} at {manifest.commit} into {profile.storage.hf_home}, {_way(self.site)}",
        )


def _way(site: WeightsSite) -> str:
    """How the bytes come, for the plan."""
    weights, nodes = site.profile.weights, len(site.topology.nodes)
    origin = "the Hub" if weights.mirror is None else weights.mirror
    if site.is_shared:
        return f"once for all {nodes} nodes, from {origin}"
    if site.is_swarm:
        return f"each byte once from {origin}, then between the {nodes} nodes"
    return f"all of it from {origin}"
