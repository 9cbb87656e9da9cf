"""Prove it: no container of the run, GPU memory given back, ports closed, read from the node and not from our acts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Question
from k3deploy.domain.freed import Freed, freed
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.teardown.site import TeardownSite

# The driver gives GPU memory back a while after the last process of an engine has gone.
_WITHIN_S = 120.0
_POLL_S = 1.0


@dataclass(frozen=True)
class WaitUntilFree:
    """Wait at most two minutes; verify then says what is still there."""

    site: TeardownSite
    node: NodeName

    def perform(self, svc: Services, progress: Progress) -> None:
        deadline = svc.clock.monotonic() + _WITHIN_S
        while True:
            svc.survey.forget([self.node])
            now = look(self.site, svc, self.node)
            if now.is_free or svc.clock.monotonic() > deadline:
                return
            progress("; ".join(now.ours))
            svc.clock.sleep(_POLL_S)


@dataclass(frozen=True)
class ProveFreePhase:
    site: TeardownSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("prove-free")

    @property
    def title(self) -> str:
        return "Prove that GPUs and ports are free"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("storage-restore" if self.site.options.restores else "engine-remove"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question, self.site.container_question))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self.site.digest

    def probe(self, svc: Services, target: Target) -> Freed:
        return look(self.site, svc, target.nodes[0])

    def plan(self, target: Target, seen: Freed) -> Plan:
        if seen.is_free:
            return Plan.noop("; ".join(("GPUs and ports are free", *seen.others)))
        return Plan.of(
            Step("wait until GPUs and ports are free", WaitUntilFree(self.site, target.nodes[0]), "\n".join(seen.ours))
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        now = look(self.site, svc, target.nodes[0])
        if not now.is_free:
            return Verdict.bad(
                "; ".join(now.ours),
                why="everything of this run was removed and this stayed",
                fix="look at `nvidia-smi` and `ps` on the node; a process that hangs in the driver ends with a reboot",
            )
        return Verdict.ok("; ".join(("GPUs and ports are free", *now.others)), others=list(now.others))


def look(site: TeardownSite, svc: Services, node: NodeName) -> Freed:
    replica = site.topology.replica_of(node)
    return freed(site.facts(svc, node), site.seen(svc, node), site.ports(replica, node))
