"""Storage: Docker's data and the weights are on the data disk, in folders that the run has noted as its own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.docker_facts import docker_question
from k3deploy.domain.docker_place import Move, Seen, move
from k3deploy.domain.errors import NodeError
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.node_site import NodeSite

FOLDERS_TIMEOUT_S: Final = 60.0
# Stopping, starting and waiting for an answer, and the same once more to go back.
MOVE_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True)
class MakeFolders:
    """Make the run's folder and, where they are missing, those of Docker and of the cache."""

    node: NodeName
    mount: str
    run_dir: str
    hf_home: str | None
    docker_root: str | None

    def perform(self, svc: Services, progress: Progress) -> None:
        folders = []
        if self.hf_home is not None:
            folders.append({"path": self.hf_home, "owner": "login", "mode": 0o755})
        if self.docker_root is not None:
            folders.append({"path": self.docker_root, "owner": "root", "mode": 0o710})  # as dockerd makes it
        args = {"mount": self.mount, "run_dir": self.run_dir, "folders": folders}
        svc.nodes[self.node].call(Program("storage_folders", args, sudo=True, timeout_s=FOLDERS_TIMEOUT_S))


@dataclass(frozen=True)
class MoveDocker:
    """Write daemon.json, restart Docker, read back; the old file and a running daemon if anything is wrong."""

    node: NodeName
    mount: str
    run_dir: str
    run: str
    change: Move

    def perform(self, svc: Services, progress: Progress) -> None:
        args = {
            "mount": self.mount,
            "run_dir": self.run_dir,
            "run_id": self.run,
            "daemon_json": self.change.path,
            "seen_sha256": self.change.seen_sha256,
            "text": self.change.text,
            "can_validate": self.change.can_validate,
            "may_use_containerd": self.change.may_use_containerd,
        }
        progress("restarting Docker with its data on " + self.mount)
        svc.nodes[self.node].call(Program("docker_move", args, sudo=True, timeout_s=MOVE_TIMEOUT_S))


@dataclass(frozen=True)
class StoragePhase:
    site: NodeSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("storage")

    @property
    def title(self) -> str:
        return "Put Docker's data and the weights' cache on the data disk"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("preflight"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question, docker_question(), self.site.storage_question))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        storage = self.site.profile.storage
        return digest_of(
            identity=self.site.identity(svc, target.nodes[0]),
            mount=storage.mount,
            docker_root=storage.docker_root,
            hf_home=storage.hf_home,
        )

    def probe(self, svc: Services, target: Target) -> Seen:
        node = target.nodes[0]
        return Seen(node, self.site.facts(svc, node), self.site.docker(svc, node), self.site.storage(svc, node))

    def plan(self, target: Target, seen: Seen) -> Plan:
        """Raises NodeError for what is not ours to change."""
        wanted = self.site.profile.storage
        _refuse_foreign_cache(seen)
        change = move(seen, wanted.docker_root)
        needs_hf_home = not seen.storage.hf_home.exists
        needs_docker_root = change is not None and "data-root" in change.settings
        steps = []
        if needs_hf_home or needs_docker_root or not self._is_private(seen):
            folder = self.site.folder.path
            made = [folder] + [wanted.hf_home] * needs_hf_home + [wanted.docker_root] * needs_docker_root
            steps.append(
                Step(
                    f"make {', '.join(made)}",
                    MakeFolders(
                        node=seen.node,
                        mount=wanted.mount,
                        run_dir=folder,
                        hf_home=wanted.hf_home if needs_hf_home else None,
                        docker_root=wanted.docker_root if needs_docker_root else None,
                    ),
                )
            )
        if change is not None:
            steps.append(
                Step(
                    f"have Docker keep its data below {wanted.docker_root} and restart it",
                    MoveDocker(seen.node, wanted.mount, self.site.folder.path, str(self.site.run), change),
                    detail=_shown(change, str(self.site.run)),
                )
            )
        if not steps:
            return Plan.noop(f"Docker keeps its data at {seen.info.root}, the cache is {wanted.hf_home}")
        return Plan.of(*steps)

    def verify(self, svc: Services, target: Target) -> Verdict:
        seen = self.probe(svc, target)
        wanted = self.site.profile.storage
        if not seen.has_images_on_mount:
            return Verdict.bad(
                f"Docker keeps its data at {seen.info.root}, not on {wanted.mount}",
                why=f"storage driver {seen.info.driver}, {seen.info.driver_type or 'no containerd image store'}",
                fix="look at `systemctl cat docker` and `sudo docker info` on the node",
            )
        if seen.storage.not_ours or not self._is_private(seen) or not seen.storage.hf_home.is_on_mount:
            return Verdict.bad(
                f"{self.site.folder.path} or {wanted.hf_home} is missing, or belongs to somebody else",
                fix="run the same command again; if it stays, look at `ls -ld` of both on the node",
            )
        return Verdict.ok(
            f"Docker's data at {seen.info.root}, cache at {wanted.hf_home}",
            docker_root=seen.info.root,
            docker_version=seen.info.version,
            storage_driver=seen.info.driver,
            changed=[entry.undo for entry in seen.storage.journal],
        )

    def _is_private(self, seen: Seen) -> bool:
        """The run's folder is there and only its owner may look into it: keys will lie there."""
        found = seen.storage.run_dir
        return found.exists and found.is_on_mount and found.uid == seen.facts.login.uid and found.mode == 0o700


def _refuse_foreign_cache(seen: Seen) -> None:
    """A download by somebody else leaves folders that the login user can't write. They are not ours to give away."""
    if not seen.storage.not_ours:
        return
    paths = " ".join(each.path for each in seen.storage.not_ours)
    login = seen.facts.login.name
    raise NodeError(
        what=f"{seen.node}: the cache belongs to {seen.storage.not_ours[0].owner}, not to {login}",
        why="the download runs as the login user and could not write there",
        fix=f"if it may be yours: `sudo chown -R {login}: {seen.storage.not_ours[0].path}`",
        context={"node": seen.node, "found": paths, "wanted": f"owned by {login}"},
    )


def _shown(change: Move, run: str) -> str:
    """What is set in the file (its other keys may hold credentials of a proxy), and what a person should know."""
    rows = [f"{change.path}: set {json.dumps(change.settings)}; the old file is kept as {change.path}.k3deploy-{run}"]
    return "\n".join([*rows, *change.notes])
