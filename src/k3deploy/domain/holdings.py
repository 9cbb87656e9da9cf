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
from k3deploy.domain.weights import cache_folder, wanted_repositories

# The journal outlives the other files of a run, so that storage can still be put back later.
JOURNAL: Final = "created.json"


@dataclass(frozen=True)
class TeardownOptions:
    """`--purge-weights` and `--restore`."""

    purges_weights: bool = False
    restores: bool = False


def model_folders(profile: Profile) -> tuple[str, ...]:
    """Names of the folders of the model and of its draft in the cache."""
    return tuple(cache_folder(repo) for repo, _ in wanted_repositories(profile.model))


def holdings_question(profile: Profile, run: RunId) -> Question:
    folder = RunFolder(profile.storage.mount, run).path
    caches = [f"{profile.storage.hf_home}/hub/{name}" for name in model_folders(profile)]
    return Question.of("holdings", folder=folder, run=str(run), caches=caches)


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
        """What would happen there, one thing a line, what stays included: a verb, then what it is done to."""
        if self.seen is None or self.held is None:
            return (_line("not reached", self.error),)
        rows = [*_container(self.seen), *_files(self.held), *_weights(self.held, options)]
        rows += _storage(self.held, options)
        if release is not None:
            rows.append(_line("run", " ".join(release)))
        return tuple(rows) or ("nothing of this run is there",)

    def as_dict(self, options: TeardownOptions, release: tuple[str, ...] | None) -> dict[str, Any]:
        return {
            "node": self.node,
            "address": self.address,
            "is_reached": self.held is not None,
            "would": list(self.lines(options, release)),
            "weights_bytes": self.held.weights_bytes if self.held else None,
        }


def _line(verb: str, what: str) -> str:
    return f"{verb:<8}{what}" if len(verb) < 8 else f"{verb}: {what}"


def _container(seen: NodeSeen) -> list[str]:
    found = seen.container
    if found is None:
        return []
    name = f"container {found.name} ({found.id[:12]}, {found.how_it_is})"
    if not seen.is_ours:
        return [_line("leave", f"{name}: it is not this run's")]
    stop = [_line("stop", name)] if found.is_running else []
    return [*stop, _line("export", "its log to the store"), _line("remove", name if not stop else "the container")]


def _files(held: Holdings) -> list[str]:
    rows = []
    if held.running_jobs:
        rows.append(_line("stop", f"jobs: {', '.join(job.name for job in held.running_jobs)}"))
    if held.own_files:
        rows.append(_line("remove", f"files of the run: {', '.join(held.own_files)}"))
    return rows


def _weights(held: Holdings, options: TeardownOptions) -> list[str]:
    if held.weights_bytes is None:
        return []
    what = f"{bytes_text(held.weights_bytes)} of weights in {held.weights_path}"
    return [
        _line("remove", what) if options.purges_weights else _line("keep", f"{what} (--purge-weights removes them)")
    ]


def _storage(held: Holdings, options: TeardownOptions) -> list[str]:
    """What the run noted that it changed, last change first, as it is undone."""
    undo = [entry.undo for entry in reversed(held.journal)]
    if not undo and held.has_backup:
        undo = ["put daemon.json back from the run's backup"]
    if options.restores:
        return [_line("restore", each) for each in undo]
    head = _line("keep", "the storage as the run set it up; --restore would:")
    return [head, *(f"{'':10}{each}" for each in undo)] if undo else []
