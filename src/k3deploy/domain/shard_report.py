"""What `verify-shards` found on all nodes, and the one word for it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from k3deploy.domain.errors import ExitCode, K3Error
from k3deploy.domain.names import NodeName
from k3deploy.domain.repository_report import Finding, RepositoryReport
from k3deploy.domain.units import bytes_text, duration_text
from k3deploy.domain.weights import Manifest

HEADER = ("node", "shards", "bytes", "commit", "level", "verdict", "hashed now", "known", "time")
LOOKED = "names, sizes, links, headers, index and small files are right"


@dataclass(frozen=True)
class NodeReport:
    """One node, a report for each repository. With `error` nothing can be told of it."""

    node: NodeName
    repositories: tuple[RepositoryReport, ...] = ()
    error: K3Error | None = None

    @property
    def finding(self) -> Finding:
        if self.error is not None:
            return Finding.UNKNOWN
        return Finding.worst([each.finding for each in self.repositories])

    @property
    def is_bad(self) -> bool:
        return self.finding in (Finding.INCOMPLETE, Finding.CORRUPT)

    @property
    def needs_repair(self) -> bool:
        """A file is bad that can be fetched again, or a killed download left something."""
        return any(each.leftovers or (each.faults and not each.is_beyond_repair) for each in self.repositories)

    def as_dict(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "verdict": self.finding,
            "repositories": [each.as_dict() for each in self.repositories],
            "error": None if self.error is None else self.error.as_dict(),
        }


@dataclass(frozen=True)
class ShardReport:
    """All nodes. `source`: where the list of files comes from. `again`: the command that mends what is wrong."""

    manifests: tuple[Manifest, ...]
    source: str
    nodes: tuple[NodeReport, ...]
    again: str
    repaired: tuple[str, ...] = ()

    @property
    def finding(self) -> Finding:
        return Finding.worst([node.finding for node in self.nodes])

    @property
    def exit_code(self) -> ExitCode:
        """A fault that was seen counts more than a node that could not be looked at."""
        codes = {
            Finding.CORRUPT: ExitCode.UNHEALTHY,
            Finding.INCOMPLETE: ExitCode.UNHEALTHY,
            Finding.UNKNOWN: ExitCode.FAILED,
        }
        return codes.get(self.finding, ExitCode.DONE)

    @property
    def needs_repair(self) -> tuple[NodeName, ...]:
        return tuple(node.node for node in self.nodes if node.needs_repair)

    @property
    def next_step(self) -> str:
        """What mends it; "" where nothing is to be mended."""
        if self.needs_repair:
            return self.again
        if any(each.is_beyond_repair for _, each in self._parts()):
            return "take another revision: the files are as the Hub has them, and do not go together"
        return ""

    @property
    def to_repair(self) -> tuple[str, ...]:
        """What a repair is for, a line for each node."""
        return tuple(
            f"{node.node}: {', '.join(each.to_repair for each in node.repositories if each.to_repair)}"
            for node in self.nodes
            if node.needs_repair
        )

    @property
    def has_one_commit(self) -> bool:
        """Whether every node that could be looked at holds the commits that were asked for."""
        return all(each.held_commit == each.manifest.commit for _, each in self._parts())

    @property
    def headline(self) -> str:
        bad = [str(node.node) for node in self.nodes if node.is_bad]
        if bad:
            return f"{self.finding}: {', '.join(bad)}"
        unknown = [str(node.node) for node in self.nodes if node.error is not None]
        if unknown:
            return f"UNKNOWN: could not look at {', '.join(unknown)}"
        size = bytes_text(sum(manifest.total_bytes for manifest in self.manifests))
        hashed, known = (sum(getattr(each, name) for _, each in self._parts()) for name in ("hashed", "known"))
        times = [each.known_at for _, each in self._parts() if each.known_at is not None]
        since = f" ({datetime.fromtimestamp(min(times), UTC):%Y-%m-%d %H:%M} UTC or later)" if times else ""
        if self.finding is Finding.QUICK_OK:
            before = f"; {known} files are unchanged since their proof{since}" if known else ""
            return f"QUICK-OK: {LOOKED} ({size}), shards were not read{before}"
        who = f"all {len(self.nodes)} nodes hold the same {size}" if len(self.nodes) > 1 else f"all {size} are right"
        if not known:
            return f"COMPLETE: {who}, every byte hashed now"
        return f"COMPLETE: {who}, {hashed} files hashed now, {known} unchanged since their proof{since}"

    def rows(self) -> list[tuple[str, ...]]:
        """Under HEADER: one row a node, and one more for each further repository."""
        rows: list[tuple[str, ...]] = []
        for node in self.nodes:
            if node.error is not None:
                rows.append((str(node.node), *("-",) * 4, node.finding, *("-",) * 3))
            names = (str(node.node), *(f"  + {each.manifest.repo}" for each in node.repositories[1:]))
            rows += [(name, *_cells(each)) for name, each in zip(names, node.repositories, strict=False)]
        return rows

    def notes(self) -> list[str]:
        """Commits, bad files, what lies beside, nodes that could not be looked at, and what to do: a line each."""
        lines = [self._commits(), *(f"repaired: {line}" for line in self.repaired)]
        for node in self.nodes:
            for each in node.repositories:
                where = node.node if len(self.manifests) == 1 else f"{node.node}: {each.manifest.repo}"
                lines += [f"{where}: {line}" for line in each.lines()]
            if node.error is not None:
                lines += [f"{node.node}: {node.error.what}", f"  fix: {node.error.fix}"]
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return [line for line in lines if line]

    def _commits(self) -> str:
        parts = list(self._parts())
        others = [
            f"{node} holds {each.held_commit}"
            for node, each in parts
            if each.held_commit not in (None, each.manifest.commit)
        ]
        if others:
            return f"commits differ: {', '.join(others)}"
        count = len({node for node, _ in parts})
        return f"all {count} nodes hold the same commit" if self.has_one_commit and count > 1 else ""

    def _parts(self) -> Iterator[tuple[NodeName, RepositoryReport]]:
        for node in self.nodes:
            for each in node.repositories:
                yield node.node, each

    def head(self) -> list[str]:
        """What was compared with what, a line for each repository."""
        return [
            f"{manifest.repo} at {manifest.commit}: {len(manifest.files)} files, "
            f"{bytes_text(manifest.total_bytes)}; list of files: {self.source}"
            for manifest in self.manifests
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.finding,
            "headline": self.headline,
            "exit_code": int(self.exit_code),
            "same_commit": self.has_one_commit,
            "manifest_source": self.source,
            "manifests": [
                {
                    "repo": manifest.repo,
                    "commit": manifest.commit,
                    "digest": manifest.digest,
                    "files": len(manifest.files),
                    "bytes": manifest.total_bytes,
                }
                for manifest in self.manifests
            ],
            "nodes": [node.as_dict() for node in self.nodes],
            "repaired": list(self.repaired),
            "next": self.next_step or None,
        }


def _cells(report: RepositoryReport) -> Sequence[str]:
    return (
        f"{report.good_shards}/{len(report.manifest.shards)}",
        report.bytes_text,
        (report.held_commit or "none")[:12],
        report.level,
        report.finding,
        str(report.hashed),
        str(report.known),
        duration_text(report.seconds),
    )
