"""Remove: the run's container, its jobs and its files on a node, keys among them. Others' containers stay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.holdings import Holdings, JobHeld
from k3deploy.domain.launch.record import NodeSeen
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName, RunId
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.engine_actions import RemoveContainers, StopRanks
from k3deploy.phases.teardown.site import TeardownSite

_JOB_GRACE_S = 30.0
_JOB_STOP_TIMEOUT_S = 180.0
# Stamps and the client are thousands of small files at most.
_CLEAR_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class StopJobs:
    node: NodeName
    run: RunId
    jobs: tuple[JobHeld, ...]

    def perform(self, svc: Services, progress: Progress) -> None:
        for job in self.jobs:
            progress(f"stopping job {job.name}")
            args = {"id": f"{self.run}-{job.name}", "dir": job.folder, "grace_s": _JOB_GRACE_S}
            svc.nodes[self.node].call(Program("job_stop", args, sudo=True, timeout_s=_JOB_STOP_TIMEOUT_S))


@dataclass(frozen=True)
class ClearFiles:
    node: NodeName
    folder: str

    def perform(self, svc: Services, progress: Progress) -> None:
        program = Program("run_clear", {"folder": self.folder}, sudo=True, timeout_s=_CLEAR_TIMEOUT_S)
        svc.nodes[self.node].call(program)


@dataclass(frozen=True)
class NodeHeld:
    seen: NodeSeen
    held: Holdings


@dataclass(frozen=True)
class EngineRemovePhase:
    site: TeardownSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("engine-remove")

    @property
    def title(self) -> str:
        return "Remove the run's container, jobs and files"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("logs-export"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.container_question, self.site.holdings_question))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self.site.digest

    def probe(self, svc: Services, target: Target) -> NodeHeld:
        node = target.nodes[0]
        return NodeHeld(self.site.seen(svc, node), self.site.held(svc, node))

    def plan(self, target: Target, seen: NodeHeld) -> Plan:
        node = target.nodes[0]
        steps = []
        container, found = self.site.ours(node, seen.seen), seen.seen.container
        if container is not None and found is not None:
            if found.is_running:  # it was started again since the engine was stopped
                steps.append(
                    Step(
                        f"stop rank {container.node_rank}",
                        StopRanks((container,), self.site.profile.timeouts.stop_s),
                    )
                )
            steps.append(
                Step(
                    f"remove container {found.name} ({found.id[:12]})",
                    RemoveContainers((container,), self.site.container_question),
                )
            )
        if seen.held.running_jobs:
            names = ", ".join(job.name for job in seen.held.running_jobs)
            steps.append(Step(f"stop jobs: {names}", StopJobs(node, self.site.run, seen.held.running_jobs)))
        if seen.held.own_files or (seen.held.exists and not seen.held.journal):
            names = ", ".join(seen.held.own_files) or "the empty folder"
            steps.append(Step(f"remove {names} in {self.site.folder.path}", ClearFiles(node, self.site.folder.path)))
        if not steps:
            return Plan.noop(_left_alone(seen.seen) or "nothing of this run is left here")
        return Plan.of(*steps)

    def verify(self, svc: Services, target: Target) -> Verdict:
        now = self.probe(svc, target)
        left = [f"container {now.seen.container.id[:12]}"] if now.seen.is_ours and now.seen.container else []
        left += [f"job {job.name}" for job in now.held.running_jobs]
        left += [f"{self.site.folder.path}/{name}" for name in now.held.own_files]
        if left:
            return Verdict.bad(f"still there: {', '.join(left)}", fix="run the same command again")
        return Verdict.ok(_left_alone(now.seen) or "no container, no job, no file of this run")


def _left_alone(seen: NodeSeen) -> str:
    if seen.container is None or seen.is_ours:
        return ""
    return f"container {seen.container.name} ({seen.container.id[:12]}) is not this run's and stays"
