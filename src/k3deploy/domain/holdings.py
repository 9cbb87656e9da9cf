"""What a run has on a node, typed, and what a teardown would do about it, in words. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.domain.command import Question
from k3deploy.domain.journal import Entry, parse
from k3deploy.domain.launch.record import NodeSeen
from k3deploy.domain.names import NodeName, RunId
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.run_folder import RunFolder
from k3deploy.domain.units import bytes_text
from k3deploy.domain.weights import cache_folder

# The journal outlives the other files of a run, so that storage can still be put back later.
JOURNAL: Final = "created.json"


@dataclass(frozen=True)
class TeardownOptions:
    """`--purge-weights` and `--restore`."""

    purges_weights: bool = False
    restores: bool = False


def model_cache(profile: Profile) -> str:
    return f"{profile.storage.hf_home}/hub/{cache_folder(profile.model.repo)}"


def holdings_question(profile: Profile, run: RunId) -> Question:
    folder = RunFolder(profile.storage.mount, run).path
    return Question.of("holdings", folder=folder, run=str(run), cache=model_cache(profile))


@dataclass(frozen=True)
class JobHeld:
    """`state`: running, finished, dead or absent (its folder has no job in it)."""

    name: str
    folder: str
    state: str


@dataclass(frozen=True)
class Holdings:
    """`files`: names in the run's folder. `weights_bytes`: None when the model is not in the cache."""

    exists: bool
    jobs: tuple[JobHeld, ...]
    files: tuple[str, ...]
    journal: tuple[Entry, ...]
    has_backup: bool
    weights_path: str
    weights_bytes: int | None

    @property
    def running_jobs(self) -> tuple[JobHeld, ...]:
        return tuple(job for job in self.jobs if job.state == "running")

    @property
    def own_files(self) -> tuple[str, ...]:
        """All but the journal."""
        return tuple(name for name in self.files if name != JOURNAL)

    @property
    def can_restore(self) -> bool:
        return self.exists or self.has_backup

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "Holdings":
        """From the section's answer. Raises KeyError or TypeError for another shape: a fault of ours."""
        return Holdings(
            exists=body["exists"],
            jobs=tuple(JobHeld(row["name"], row["dir"], row["state"]) for row in body["jobs"]),
            files=tuple(body["files"]),
            journal=parse(body["journal"]),
            has_backup=body["has_backup"],
            weights_path=body["weights"]["path"],
            weights_bytes=body["weights"]["bytes"],
        )


@dataclass(frozen=True)
class Doomed:
    """One node's part of a teardown that was not confirmed. `error`: why it could not be looked at."""

    node: NodeName
    address: str
    seen: NodeSeen | None = None
    held: Holdings | None = None
    error: str = ""

    def lines(self, options: TeardownOptions, release: tuple[str, ...] | None) -> tuple[str, ...]:
        """What would happen there, one thing a line, what stays included."""
        if self.seen is None or self.held is None:
            return (f"not reached: {self.error}",)
        rows = [*self._container(self.seen), *self._files(self.held), self._weights(self.held, options)]
        rows += self._storage(self.held, options)
        if release is not None:
            rows.append(f"run     {' '.join(release)}")
        return tuple(row for row in rows if row)

    def _container(self, seen: NodeSeen) -> list[str]:
        found = seen.container
        if found is None:
            return ["nothing runs: there is no container of this run"]
        if not seen.is_ours:
            return [f"leave   container {found.name} ({found.id[:12]}): it is not this run's"]
        verb = "stop, then remove" if found.is_running else "remove"
        return [f"{verb}  container {found.name} ({found.id[:12]}, {found.how_it_is}), after its log went to the store"]

    def _files(self, held: Holdings) -> list[str]:
        rows = []
        if held.running_jobs:
            rows.append(f"stop    jobs: {', '.join(job.name for job in held.running_jobs)}")
        if held.own_files:
            rows.append(f"remove  files of the run: {', '.join(held.own_files)}")
        return rows

    def _weights(self, held: Holdings, options: TeardownOptions) -> str:
        if held.weights_bytes is None:
            return ""
        what = f"weights: {bytes_text(held.weights_bytes)} in {held.weights_path}"
        return f"remove  {what}" if options.purges_weights else f"keep    {what} (--purge-weights removes them)"

    def _storage(self, held: Holdings, options: TeardownOptions) -> list[str]:
        if not held.journal:
            return ["restore daemon.json from the run's backup"] if held.has_backup and options.restores else []
        undo = "; ".join(entry.undo for entry in reversed(held.journal))
        if options.restores:
            return [f"restore {undo} (folders only when nothing of others is in them)"]
        return [f"keep    the storage as the run set it up (--restore would: {undo})"]

    def as_dict(self, options: TeardownOptions, release: tuple[str, ...] | None) -> dict[str, Any]:
        return {
            "node": self.node,
            "address": self.address,
            "is_reached": self.held is not None,
            "would": list(self.lines(options, release)),
            "weights_bytes": self.held.weights_bytes if self.held else None,
        }
