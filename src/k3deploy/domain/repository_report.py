"""What a look at one repository on one node found, and what it may be called. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from k3deploy.domain.one_line import one_line
from k3deploy.domain.units import bytes_text
from k3deploy.domain.weights import Manifest
from k3deploy.domain.weights_found import FileFault, Leftover, warnings

_SHOWN: Final = 20
_NAMED: Final = 3
# Of files that are not (yet) what they should be; with any other fault, something is there that is wrong.
_UNFINISHED: Final = frozenset({"missing", "dangling", "size", "running", "changed", "ref"})
# How the files go together, rather than whether they are the Hub's.
_SHAPE: Final = frozenset({"header", "tensors", "index"})


class Finding(StrEnum):
    """`QUICK-OK`: nothing wrong was seen, and the shards' bytes were not read; only a full look may say COMPLETE."""

    COMPLETE = "COMPLETE"
    QUICK_OK = "QUICK-OK"
    UNKNOWN = "UNKNOWN"  # could not look
    INCOMPLETE = "INCOMPLETE"
    CORRUPT = "CORRUPT"

    @staticmethod
    def worst(findings: Sequence["Finding"]) -> "Finding":
        return max(findings, key=list(Finding).index)


@dataclass(frozen=True)
class RepositoryReport:
    """`hashed` files were read now, `known` ones have an unchanged stamp of an earlier proof, the oldest of `known_at`.

    `held_commit`: that of the files that were looked at, or which other one is there instead; None for none.
    `mismatches`: how many times a file was found wrong. `forgotten`: why what was proved could not be kept.
    """

    manifest: Manifest
    level: str
    faults: tuple[FileFault, ...] = ()
    notes: tuple[str, ...] = ()
    held_commit: str | None = None
    hashed: int = 0
    hashed_bytes: int = 0
    known: int = 0
    known_at: float | None = None
    leftovers: int = 0
    seconds: float = 0.0
    mismatches: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def parse(result: Mapping[str, Any], manifest: Manifest, *, needs_ref: bool) -> "RepositoryReport":
        """`result`: of `remote/hashing.py`. `needs_ref`: the repository's name has to mean this commit there."""
        faults = [FileFault.parse(each) for each in result["faults"]]
        partials = tuple(Leftover.parse(each) for each in result["partials"])
        main, others = result["main_commit"], tuple(map(one_line, result["other_commits"]))
        notes = list(
            warnings(
                partials=partials,
                quarantined=tuple(Leftover.parse(each) for each in result["quarantined"]),
                other_commits=others,
            )
        )
        is_absent = sum(1 for fault in faults if fault.kind == "missing") == len(manifest.files)
        if needs_ref and main is None and not is_absent:
            notes.append("refs/main is absent: an offline launch by name would not find the model")
        elif needs_ref and main not in (None, manifest.commit):
            faults.append(FileFault("refs/main", "ref", str(main), manifest.commit))
        if result["forgotten"]:
            notes.append(f"{result['forgotten']}; the next look hashes all of it again")
        return RepositoryReport(
            manifest=manifest,
            level="quick" if result["level"] == "quick" else "full",
            faults=tuple(faults),
            notes=tuple(notes),
            held_commit=next(iter(others), None) if is_absent else manifest.commit,
            hashed=result["hashed"],
            hashed_bytes=result["hashed_bytes"],
            known=result["known"],
            known_at=result["known_at"],
            leftovers=sum(1 for each in partials if each.pid is None),
            seconds=result["seconds"],
            mismatches=result["mismatches"],
        )

    @property
    def finding(self) -> Finding:
        if any(fault.kind not in _UNFINISHED for fault in self.faults):
            return Finding.CORRUPT
        if self.faults:
            return Finding.INCOMPLETE
        return Finding.QUICK_OK if self.level == "quick" else Finding.COMPLETE

    @property
    def is_beyond_repair(self) -> bool:
        """Whether every file is what the Hub has, and they do not go together: fetching them again gives the same."""
        return self.level == "full" and bool(self.faults) and all(fault.kind in _SHAPE for fault in self.faults)

    @property
    def good_shards(self) -> int:
        return sum(1 for file in self.manifest.shards if file.path not in self._bad)

    @property
    def good_bytes(self) -> int:
        return sum(file.size_bytes for file in self.manifest.files if file.path not in self._bad)

    @property
    def bytes_text(self) -> str:
        total = bytes_text(self.manifest.total_bytes)
        return total if not self._bad else f"{bytes_text(self.good_bytes)} of {total}"

    @property
    def _bad(self) -> frozenset[str]:
        return frozenset(fault.path for fault in self.faults) & {file.path for file in self.manifest.files}

    @property
    def to_repair(self) -> str:
        """What a repair has to mend: "" for nothing."""
        paths = sorted({fault.path for fault in self.faults})
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        leftovers = f"{self.leftovers} leftover{'s' if self.leftovers > 1 else ''} of killed downloads"
        return "; ".join(part for part in (", ".join(paths[:_NAMED]) + more, self.leftovers and leftovers) if part)

    def lines(self) -> list[str]:
        """Each bad file with what is wrong, then what lies beside; files wrong in the same way are cut short."""
        lines = [f"BAD {line}" for line in self._fault_lines()]
        lines += [
            f"{path} was wrong {count} times: suspect this node's disk or memory"
            for path, count in sorted(self.mismatches.items())
        ]
        return lines + [f"note: {note}" for note in self.notes]

    def _fault_lines(self) -> list[str]:
        by_kind: dict[str, list[FileFault]] = {}
        for fault in self.faults:
            by_kind.setdefault(fault.kind, []).append(fault)
        lines = []
        files = len(self.manifest.files)
        if len(by_kind.get("missing", ())) == files:
            instead = f"; commit {self.held_commit} is there instead" if self.held_commit else ""
            lines.append(f"none of the {files} files of {self.manifest.commit} is there{instead}")
            by_kind.pop("missing")
        for kind, alike in by_kind.items():
            lines += [fault.line for fault in alike[:_SHOWN]]
            if len(alike) > _SHOWN:
                lines.append(f"and {len(alike) - _SHOWN} more: {kind} (--output json has them all)")
        return lines

    def as_dict(self) -> dict[str, Any]:
        return {
            "repo": self.manifest.repo,
            "commit": self.manifest.commit,
            "held_commit": self.held_commit,
            "level": self.level,
            "verdict": self.finding,
            "shards": len(self.manifest.shards),
            "good_shards": self.good_shards,
            "bytes": self.manifest.total_bytes,
            "good_bytes": self.good_bytes,
            "faults": [vars(fault) for fault in self.faults],
            "notes": list(self.notes),
            "hashed": self.hashed,
            "hashed_bytes": self.hashed_bytes,
            "known": self.known,
            "known_at": self.known_at,
            "repeated": sorted(self.mismatches),
            "seconds": self.seconds,
        }
