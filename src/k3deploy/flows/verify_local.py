"""`verify-shards --local`: the same proof on a folder of this machine, without a run, a node or SSH."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from k3deploy.contracts import Cancel, Clock, EventSink, Progress
from k3deploy.domain.command import Program
from k3deploy.domain.errors import Interrupted
from k3deploy.domain.names import NodeName
from k3deploy.domain.proof_level import ProofLevel
from k3deploy.domain.repository_report import RepositoryReport
from k3deploy.domain.shard_report import NodeReport, ShardReport
from k3deploy.domain.weights import Manifest
from k3deploy.flows.verify import PHASE
from k3deploy.runner.told import told

HERE: Final = NodeName("local")


class Programs(Protocol):
    """Programs of `remote/` on this machine."""

    def call(self, program: Program, progress: Progress) -> Mapping[str, Any]:
        """Run one to its end. Raises ProgramFailed with its own words."""
        ...


class Refetch(Protocol):
    """One file fetched anew from the Hub into the folder."""

    def fetch(self, manifest: Manifest, path: str, count: Callable[[int], None]) -> None:
        """`count` is told of bytes as they come. Raises HubError, and NodeError where the disk takes no more."""
        ...


@dataclass(frozen=True)
class LocalLook:
    """`where`: arguments that tell programs where the files are. `source`: where the manifest comes from.

    `by_name`: whoever loads the model by its name takes refs/main, which must mean this commit then.
    """

    where: Mapping[str, str]
    manifest: Manifest
    source: str
    by_name: bool
    again: str
    programs: Programs
    refetch: Refetch
    sink: EventSink
    clock: Clock
    cancel: Cancel

    def verify(self, level: ProofLevel, repaired: tuple[str, ...] = ()) -> ShardReport:
        """Raises ProgramFailed, and Interrupted after a Ctrl-C."""
        args = {**self._args, "level": level, "may_forget": True}
        result = self._told(level.step, lambda progress: self._call("hashing", args, progress))
        part = RepositoryReport.parse(result, self.manifest, needs_ref=self.by_name)
        return ShardReport((self.manifest,), self.source, (NodeReport(HERE, (part,)),), self.again, repaired)

    def repair(self, report: ShardReport) -> ShardReport:
        """Move what is bad aside, fetch only that, and look again. Raises HubError, NodeError, ProgramFailed."""
        kinds = {fault.kind for node in report.nodes for part in node.repositories for fault in part.faults}
        self._told(
            "fetch what is bad", lambda progress: self._mend(progress, renames="ref" in kinds), phase="weights-fetch"
        )
        return self.verify(ProofLevel.KNOWN, report.to_repair)

    def _mend(self, progress: Progress, *, renames: bool) -> None:
        paths = self._call("set_aside", self._args, progress)["missing"]
        sizes = {file.path: file.size_bytes for file in self.manifest.files}
        total, landed = sum(sizes[path] for path in paths), 0
        for at, path in enumerate(paths, 1):

            def count(size_bytes: int, message: str = f"fetching {path} ({at} of {len(paths)})") -> None:
                nonlocal landed
                landed += size_bytes
                progress(message, done=landed, total=total)

            count(0)
            self.refetch.fetch(self.manifest, path, count)
        if renames:
            folder = {"folder": self.where["folder"], "commit": self.manifest.commit}
            self._call("weights_ref", folder, progress)

    def _call(self, entry: str, args: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
        return self.programs.call(Program(entry, args), progress)

    def _told(self, step: str, work: Callable[[Progress], Any], phase: str = PHASE) -> Any:
        return told(
            self.sink, self.clock, phase, str(HERE), step=step, work=lambda progress: work(self._stoppable(progress))
        )

    def _stoppable(self, progress: Progress) -> Progress:
        """Whoever tells how far it is stops there after a Ctrl-C."""

        def tell(
            message: str,
            *,
            done: float | None = None,
            total: float | None = None,
            numbers: Mapping[str, float] | None = None,
        ) -> None:
            if self.cancel.is_set:
                raise Interrupted(
                    what="interrupted; what was hashed or fetched so far is kept",
                    fix="run the same command again: it goes on where this stopped",
                )
            progress(message, done=done, total=total, numbers=numbers)

        return tell

    @property
    def _args(self) -> dict[str, Any]:
        return {**self.where, "manifest": self.manifest.as_dict()}
