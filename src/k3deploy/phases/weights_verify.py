"""Weights-verify: every byte is what the Hub says, the files go together, and the model's name means this commit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.errors import NodeError
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.page_cache import CacheChoice
from k3deploy.domain.proof_level import ProofLevel
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.units import bytes_text
from k3deploy.domain.weights import Manifest
from k3deploy.domain.weights_found import FileFault, warnings
from k3deploy.phases.detached import DetachedJob, follow_job
from k3deploy.phases.weights_site import Held, WeightsSite

# One process hashes a 17 GB shard in 20 s; a disk that stands still for this long is broken.
SILENT_S: Final = 300.0
# 1.56 TB at 110 MB/s, the rate of one spinning disk.
TIMEOUT_S: Final = 4 * 3600.0
REF_TIMEOUT_S: Final = 60.0
_SHOWN = 5
_STRUCTURE = ("header", "tensors", "index")


@dataclass(frozen=True)
class ProveWeights:
    """Hash what is not known yet, as a detached job. Raises NodeError that lists every bad file."""

    node: NodeName
    manifest: Manifest
    name: str  # of the job
    site: WeightsSite
    keep_cached: bool

    def perform(self, svc: Services, progress: Progress) -> None:
        job = proof_job(
            self.site, self.node, self.manifest, self.name, level=ProofLevel.KNOWN, keep_cached=self.keep_cached
        )
        result = follow_job(svc, job, progress)
        faults = [FileFault.parse(each) for each in result["faults"]]
        if faults:
            raise bad_weights(self.node, faults, result["mismatches"])


@dataclass(frozen=True)
class NameCommit:
    """Write refs/main, which an offline launch by name needs, after everything is proved."""

    node: NodeName
    hf_home: str
    repo: str
    commit: str

    def perform(self, svc: Services, progress: Progress) -> None:
        args = {"hf_home": self.hf_home, "repo": self.repo, "commit": self.commit}
        svc.nodes[self.node].call(Program("weights_ref", args, timeout_s=REF_TIMEOUT_S))


@dataclass(frozen=True)
class Unproved:
    """`keep_cached`: what is read stays in memory, where it is wanted next."""

    parts: tuple[Held, ...]
    keep_cached: bool


@dataclass(frozen=True)
class WeightsVerifyPhase:
    site: WeightsSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("weights-verify")

    @property
    def title(self) -> str:
        return "Prove the weights"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("weights-fetch"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return self.site.weights_questions(svc, target)

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return self.site.weights_inputs(svc, target)

    def probe(self, svc: Services, target: Target) -> Unproved:
        node = target.nodes[0]
        choice = CacheChoice.of(self.site.facts(svc, node), self.site.profile)
        return Unproved(self.site.held(svc, node), choice.keeps)

    def plan(self, target: Target, seen: Unproved) -> Plan:
        steps = [step for held in seen.parts for step in self._steps(target.nodes[0], held, seen.keep_cached)]
        if not steps:
            return Plan.noop(f"all {sum(held.found.files for held in seen.parts)} files are proved")
        return Plan.of(*steps)

    def _steps(self, node: NodeName, held: Held, keep_cached: bool) -> Iterator[Step]:
        seen, manifest = held.found, held.manifest
        if not seen.is_proved:
            unknown = seen.files - seen.proved
            title = f"hash {unknown} of {seen.files} files" if unknown else "read the shards' headers and the index"
            yield Step(
                title + (f" of the draft {manifest.repo}" if held.is_draft else ""),
                ProveWeights(node, manifest, held.job_name("weights-verify"), self.site, keep_cached),
                detail=f"{bytes_text(seen.total_bytes)} in all; what is hashed once is known until it is touched",
            )
        if seen.main_commit != manifest.commit:
            yield Step(
                f"let {manifest.repo} mean {manifest.commit[:12]} on this node",
                NameCommit(node, self.site.profile.storage.hf_home, manifest.repo, manifest.commit),
                detail=f"refs/main: {seen.main_commit or 'absent'} -> {manifest.commit}",
            )

    def verify(self, svc: Services, target: Target) -> Verdict:
        """Every node of the target must see the same proved files: on a shared volume that is one proof for all."""
        by_node = {node: self.site.held(svc, node) for node in target.nodes}
        for node, parts in by_node.items():
            for held in parts:
                if (fault := _fault(node, held)) is not None:
                    return fault
        parts = by_node[target.nodes[0]]
        found = [held.found for held in parts]
        said = [
            line
            for each in found
            for line in warnings(partials=each.partials, quarantined=each.quarantined, other_commits=each.other_commits)
        ]
        files, size_bytes = sum(each.files for each in found), sum(each.total_bytes for each in found)
        return Verdict.ok(
            f"{files} files, {bytes_text(size_bytes)}, every byte as the Hub has it",
            commit=parts[0].manifest.commit,
            files=files,
            bytes=size_bytes,
            manifest=[held.manifest.digest for held in parts],
            read_bytes=sum(each.read_bytes for each in found),
            **({"warnings": said} if said else {}),
        )


def _fault(node: NodeName, held: Held) -> Verdict | None:
    seen, manifest = held.found, held.manifest
    again = "run the same command again: only what is wrong is fetched and hashed"
    if seen.missing:
        first = seen.missing[0]
        return Verdict.bad(
            f"{len(seen.missing)} files are not right, first {first.path}",
            fix=again,
            node=node,
            found=first.found,
            wanted=first.wanted,
        )
    if not seen.is_proved:
        return Verdict.bad(f"{seen.files - seen.proved} of {seen.files} files are not proved", fix=again, node=node)
    if seen.main_commit != manifest.commit:
        return Verdict.bad(
            f"{manifest.repo} means another commit on this node",
            fix=again,
            node=node,
            found=seen.main_commit or "none",
            wanted=manifest.commit,
        )
    return None


def proof_job(
    site: WeightsSite,
    node: NodeName,
    manifest: Manifest,
    name: str,
    *,
    level: ProofLevel,
    keep_cached: bool = False,
    may_forget: bool = False,
) -> DetachedJob:
    """The detached job `name` that proves a node's weights. What follows it are arguments of `remote/hashing.py`."""
    return DetachedJob(
        node=node,
        id=f"{site.run}-{name}",
        folder=f"{site.folder.jobs}/{name}",
        entry="hashing",
        args={
            "hf_home": site.profile.storage.hf_home,
            "manifest": manifest.as_dict(),
            "level": level,
            "keep_cached": keep_cached,
            "may_forget": may_forget,
        },
        silent_s=SILENT_S,
        timeout_s=TIMEOUT_S,
    )


def bad_weights(node: NodeName, faults: Sequence[FileFault], mismatches: Mapping[str, Any]) -> NodeError:
    """What is wrong, file by file, and whether it is the node's own fault."""
    again = [fault.path for fault in faults if mismatches.get(fault.path, 0) > 1]
    shown = [fault.line for fault in faults[:_SHOWN]]
    if len(faults) > _SHOWN:
        shown.append(f"and {len(faults) - _SHOWN} more")
    if all(fault.kind in _STRUCTURE for fault in faults):
        why = "the node holds exactly what the Hub has, and that does not go together"
        fix = "look at the model's page: this revision is broken, name another one in model.revision"
    elif again:
        why = f"{again[0]} is wrong for the second time on this node: suspect its disk or its memory"
        fix = "replace the node, or run the same command again: the bad files alone are fetched anew"
    else:
        why = "a transfer or the disk changed bytes; the Hub's client checks sizes, not content"
        fix = "run the same command again: the bad files alone are moved aside and fetched anew"
    return NodeError(
        what=f"{node}: {len(faults)} file{'s' if len(faults) > 1 else ''} of the weights "
        f"{'are' if len(faults) > 1 else 'is'} wrong",
        why=why,
        fix=fix,
        context={"node": node, "files": "; ".join(shown)},
    )
