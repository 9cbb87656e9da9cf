"""What a node holds of the weights, typed. Parsed from the answer of `remote/sections/weights.py`; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3deploy.domain.command import Question
from k3deploy.domain.one_line import one_line
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.units import bytes_text
from k3deploy.domain.weights import Manifest

# Of a digest, for people.
_DIGITS = 12


def weights_question(profile: Profile, manifest: Manifest) -> Question:
    """The one question for weights: whoever asks it this way shares its answer with everybody else."""
    return Question.of("weights", hf_home=profile.storage.hf_home, manifest=manifest.as_dict())


@dataclass(frozen=True)
class FileFault:
    """One file that is not right. `kind`: missing, dangling, size, wrong-link, outside, not-a-file, unreadable, running
    (a download of it is), changed (while it was read), header, tensors, index, digest, ref.
    """

    path: str
    kind: str
    found: str
    wanted: str

    @property
    def line(self) -> str:
        found, wanted = self.found, self.wanted
        if self.kind == "digest":
            found, wanted = (f"{text[:_DIGITS]}..." for text in (found, wanted))
        return f"{self.path}: {self.kind}, found {found}, wanted {wanted}"

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "FileFault":
        return FileFault(body["path"], body["kind"], one_line(body["found"]), one_line(body["wanted"]))


@dataclass(frozen=True)
class Leftover:
    """A file that no snapshot needs. `pid`: the process that is writing it now, None for nobody."""

    name: str
    size_bytes: int
    pid: int | None = None

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "Leftover":
        return Leftover(one_line(body["name"]), body["bytes"], body.get("pid"))


@dataclass(frozen=True)
class WeightsFound:
    """`proved`: files whose very bytes were hashed and are right. `main_commit`: what a launch by name would take."""

    files: int
    total_bytes: int
    missing: tuple[FileFault, ...]
    missing_bytes: int
    proved: int
    is_structure_proved: bool
    main_commit: str | None
    other_commits: tuple[str, ...]
    read_bytes: int  # by the look itself
    partials: tuple[Leftover, ...]
    quarantined: tuple[Leftover, ...]

    @property
    def stale_partials(self) -> tuple[Leftover, ...]:
        """Unfinished downloads that nobody is writing."""
        return tuple(each for each in self.partials if each.pid is None)

    @property
    def stale_bytes(self) -> int:
        return sum(each.size_bytes for each in self.stale_partials)

    @property
    def is_proved(self) -> bool:
        """Every byte of every file, and how the files go together."""
        return not self.missing and self.proved == self.files and self.is_structure_proved

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "WeightsFound":
        return WeightsFound(
            files=body["files"],
            total_bytes=body["bytes"],
            missing=tuple(FileFault.parse(each) for each in body["missing"]),
            missing_bytes=body["missing_bytes"],
            proved=body["proved"],
            is_structure_proved=body["is_structure_proved"],
            main_commit=body["main_commit"],
            other_commits=tuple(map(one_line, body["other_commits"])),
            read_bytes=body["read_bytes"],
            partials=tuple(Leftover.parse(each) for each in body["partials"]),
            quarantined=tuple(Leftover.parse(each) for each in body["quarantined"]),
        )


def warnings(
    *, partials: tuple[Leftover, ...], quarantined: tuple[Leftover, ...], other_commits: tuple[str, ...]
) -> tuple[str, ...]:
    """What lies beside good weights and costs only space, each on one line."""
    lines = []
    for each in partials:
        state = f"written by process {each.pid} now" if each.pid is not None else "left by a killed download"
        lines.append(f"{each.name}: {bytes_text(each.size_bytes)}, {state}")
    lines += [f"{each.name}: {bytes_text(each.size_bytes)}, a bad copy that was moved aside" for each in quarantined]
    lines += [f"snapshot {commit}: another commit, which no launch of this run uses" for commit in other_commits]
    return tuple(lines)
