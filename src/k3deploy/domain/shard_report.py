"""What `verify-shards` found, node by node, and what it may call that. Pure.

Only a run that hashed everything now may say COMPLETE: sizes and earlier stamps are told as what they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from k3deploy.domain.errors import ExitCode, K3Error
from k3deploy.domain.names import NodeName
from k3deploy.domain.units import bytes_text, duration_text
from k3deploy.domain.weights import Manifest
from k3deploy.domain.weights_found import FileFault, Leftover, warnings

_SHOWN = 20


@dataclass(frozen=True)
class NodeReport:
    """One node. `error` is set where nothing can be told of it; then the other fields say nothing."""

    node: NodeName
    faults: tuple[FileFault, ...] = ()
    warnings: tuple[str, ...] = ()
    proved: int = 0
    hashed: int = 0
    proved_at: float | None = None
    seconds: float = 0.0
    mismatches: Mapping[str, int] = field(default_factory=dict)
    error: K3Error | None = None

    @property
    def state(self) -> str:
        """good, faulty, or unknown."""
        if self.error is not None:
            return "unknown"
        return "faulty" if self.faults else "good"

    @staticmethod
    def parse(node: NodeName, result: Mapping[str, Any], manifest: Manifest) -> "NodeReport":
        said = list(
            warnings(
                partials=tuple(Leftover.parse(each) for each in result["partials"]),
                quarantined=tuple(Leftover.parse(each) for each in result["quarantined"]),
                other_commits=tuple(result["other_commits"]),
            )
        )
        if result["main_commit"] != manifest.commit:
            said.append(
                f"refs/main is {result['main_commit'] or 'absent'}: an offline launch by name would not find it"
            )
        return NodeReport(
            node=node,
            faults=tuple(FileFault.parse(each) for each in result["faults"]),
            warnings=tuple(said),
            proved=result["proved"],
            hashed=result["hashed"],
            proved_at=result["proved_at"],
            seconds=result["seconds"],
            mismatches=result["mismatches"],
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "state": self.state,
            "faults": [vars(fault) for fault in self.faults],
            "warnings": list(self.warnings),
            "proved": self.proved,
            "hashed": self.hashed,
            "proved_at": self.proved_at,
            "seconds": self.seconds,
            "repeated": sorted(self.mismatches),
            "error": None if self.error is None else self.error.as_dict(),
        }


@dataclass(frozen=True)
class ShardReport:
    """All nodes. `is_full`: every byte was read and hashed for this report."""

    profile: str
    manifest: Manifest
    is_full: bool
    nodes: tuple[NodeReport, ...]

    @property
    def exit_code(self) -> ExitCode:
        """A fault that was seen counts more than a node that could not be looked at."""
        states = {node.state for node in self.nodes}
        if "faulty" in states:
            return ExitCode.UNHEALTHY
        return ExitCode.FAILED if "unknown" in states else ExitCode.DONE

    @property
    def headline(self) -> str:
        bad = [node.node for node in self.nodes if node.state == "faulty"]
        unknown = [node.node for node in self.nodes if node.state == "unknown"]
        if bad:
            return f"NOT RIGHT on {', '.join(bad)}"
        if unknown:
            return f"cannot tell: {', '.join(unknown)}"
        size = bytes_text(self.manifest.total_bytes)
        if self.is_full:
            return f"COMPLETE: all {len(self.nodes)} nodes hold the same {size}, every byte hashed now"
        return f"sizes ok, not hashed: all {len(self.nodes)} nodes hold {size} of the right sizes"

    def as_dict(self) -> dict[str, Any]:
        return {
            "repo": self.manifest.repo,
            "commit": self.manifest.commit,
            "manifest": self.manifest.digest,
            "files": len(self.manifest.files),
            "bytes": self.manifest.total_bytes,
            "level": "full" if self.is_full else "quick",
            "exit_code": int(self.exit_code),
            "headline": self.headline,
            "nodes": [node.as_dict() for node in self.nodes],
        }

    def rows(self) -> list[tuple[str, str, str, str]]:
        """node, state, what was read, how long it took."""
        return [(str(node.node), self._state(node), self._read(node), _took(node)) for node in self.nodes]

    def notes(self) -> list[str]:
        """Bad files, warnings, nodes that could not be looked at, and what to do, each on one line.

        Files that are wrong in the same way are cut short after a screenful; `as_dict` has them all.
        """
        lines = []
        for node in self.nodes:
            lines += [f"{node.node}: BAD {line}" for line in _fault_lines(node.faults, len(self.manifest.files))]
            lines += [
                f"{node.node}: {path} was wrong {count} times: suspect this node's disk or memory"
                for path, count in sorted(node.mismatches.items())
            ]
            lines += [f"{node.node}: note: {warning}" for warning in node.warnings]
            if node.error is not None:
                lines += [f"{node.node}: {node.error.what}", f"  fix: {node.error.fix}"]
        if any(node.faults for node in self.nodes):
            lines.append(f"next: `k3deploy up --profile {self.profile}` moves bad files aside and fetches only them")
        return lines

    def _state(self, node: NodeReport) -> str:
        return node.state if self.is_full or node.state != "good" else "sizes ok"

    def _read(self, node: NodeReport) -> str:
        if node.error is not None:
            return "-"
        if self.is_full:
            return f"{node.hashed} of {len(self.manifest.files)} files hashed"
        if node.proved == 0 or node.proved_at is None:
            return "sizes and headers"
        since = datetime.fromtimestamp(node.proved_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"sizes and headers; {node.proved} files untouched since they were hashed ({since})"


def _fault_lines(faults: tuple[FileFault, ...], files: int) -> list[str]:
    by_kind: dict[str, list[FileFault]] = {}
    for fault in faults:
        by_kind.setdefault(fault.kind, []).append(fault)
    if len(by_kind.get("missing", ())) == files:
        return [f"none of the {files} files is there"]
    lines = []
    for kind, alike in by_kind.items():
        lines += [fault.line for fault in alike[:_SHOWN]]
        if len(alike) > _SHOWN:
            lines.append(f"and {len(alike) - _SHOWN} more: {kind} (--output json has them all)")
    return lines


def _took(node: NodeReport) -> str:
    return "-" if node.error is not None else duration_text(node.seconds)
