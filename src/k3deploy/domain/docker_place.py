"""Where Docker keeps its data, where it should, and what to change for that. Pure.

Docker that keeps its data on the storage mount already is left alone, whatever the folder is called there: moving it
would only hide its images. Otherwise daemon.json gets `data-root`, and nothing is copied or pruned.

`data-root` alone does not move images that Docker keeps in containerd. That store is the default of Docker 29 and newer
where the data-root is empty, so also behind a root that has just been moved: then it is turned off in the same file
(`features.containerd-snapshotter`), and images are kept below `data-root` by the overlay2 driver.
"""

from dataclasses import dataclass
from typing import Any, Final

from k3deploy.domain.daemon_json import merge, value_of
from k3deploy.domain.docker_facts import DockerFound, DockerInfo
from k3deploy.domain.errors import NodeError
from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.names import NodeName
from k3deploy.domain.storage_facts import StorageAnswer

_CONTAINERD_BY_DEFAULT: Final = 29  # major version of Docker
_CAN_VALIDATE: Final = 23  # `dockerd --validate`
_FEATURE: Final = "containerd-snapshotter"


@dataclass(frozen=True)
class Seen:
    """All that the decision depends on."""

    node: NodeName
    facts: NodeFacts
    docker: DockerFound
    storage: StorageAnswer

    @property
    def info(self) -> DockerInfo:
        """Raises NodeError when the daemon does not answer."""
        if self.docker.info is None:
            raise _fault(
                self,
                "Docker does not answer",
                why=self.docker.why,
                fix="start it (`sudo systemctl start docker`), see `sudo journalctl -u docker` if it does not stay",
            )
        return self.docker.info

    @property
    def has_root_on_mount(self) -> bool:
        storage = self.facts.storage
        return storage is not None and self.info.root_device == storage.device

    @property
    def has_images_on_mount(self) -> bool:
        """Root and images: they are in two places when containerd keeps the images."""
        storage = self.facts.storage
        if not self.has_root_on_mount or storage is None:
            return False
        if self.info.keeps_images_in_containerd:
            return self.docker.containerd_root_device == storage.device
        return True


@dataclass(frozen=True)
class Move:
    """The new daemon.json, with what a person should know. `settings` are the keys that are set."""

    path: str
    seen_sha256: str | None
    text: str
    settings: dict[str, Any]
    notes: tuple[str, ...]
    can_validate: bool
    may_use_containerd: bool


def move(seen: Seen, docker_root: str) -> Move | None:
    """What to change so that Docker's data is on the storage mount; None when it is there.

    Raises NodeError when that is not ours to change: running containers, a root given by a flag, a configuration that
    can't be read or says the opposite.
    """
    info, storage = seen.info, seen.storage
    if seen.has_images_on_mount:
        return None
    if not storage.has_unit:
        raise _fault(
            seen,
            "Docker does not run as docker.service",
            why="it must be restarted to keep its data elsewhere, and we would not know how",
            fix=f"set `data-root` to {docker_root} in its configuration yourself and restart it, "
            "or install Docker from the distribution or from docker.com",
            found=f"its data is at {info.root}",
        )
    wanted: dict[str, Any] = {}
    if not seen.has_root_on_mount:
        _refuse_flag(seen, docker_root)
        wanted["data-root"] = docker_root
    may_use_containerd = _containerd_is_on_mount(seen)
    if not may_use_containerd and (info.keeps_images_in_containerd or _major(info) >= _CONTAINERD_BY_DEFAULT):
        _refuse_explicit_containerd(seen)
        wanted["features"] = {_FEATURE: False}
    _refuse_graph(seen)
    _refuse_running(seen)
    merged = _merge(seen, wanted)
    return Move(
        path=storage.daemon_json_path,
        seen_sha256=storage.daemon_json_sha256,
        text=merged.text,
        settings=wanted,
        notes=(*merged.notes, *left_behind(seen)),
        can_validate=_major(info) >= _CAN_VALIDATE,
        may_use_containerd=may_use_containerd,
    )


def left_behind(seen: Seen) -> tuple[str, ...]:
    """What stays at the old place, neither moved nor removed, and comes back with the old configuration."""
    info = seen.info
    notes: list[str] = []
    if info.image_count:
        notes.append(f"{info.image_count} images stay at {info.root}, not pruned; they are out of sight until restored")
    stopped = [each.name for each in seen.docker.containers if not each.is_running]
    if stopped:
        notes.append(f"stopped containers stay at {info.root}: {', '.join(stopped)}")
    return tuple(notes)


def _merge(seen: Seen, wanted: dict[str, Any]) -> Any:
    storage = seen.storage
    try:
        return merge(storage.daemon_json, wanted, path=storage.daemon_json_path)
    except NodeError as error:
        raise _named(seen, error) from error


def _value(seen: Seen, name: str) -> Any:
    storage = seen.storage
    try:
        return value_of(storage.daemon_json, name, path=storage.daemon_json_path)
    except NodeError as error:
        raise _named(seen, error) from error


def _named(seen: Seen, error: NodeError) -> NodeError:
    return NodeError(
        what=f"{seen.node}: {error.what}", why=error.why, fix=error.fix, context={"node": seen.node, **error.context}
    )


def _containerd_is_on_mount(seen: Seen) -> bool:
    storage = seen.facts.storage
    return storage is not None and seen.docker.containerd_root_device == storage.device


def _refuse_flag(seen: Seen, docker_root: str) -> None:
    """The daemon does not start with the same option as a flag and in the file (seen with Docker 20.10)."""
    flag = seen.storage.root_flag
    if flag is None:
        return
    raise _fault(
        seen,
        f"Docker's data folder is set by a flag: --data-root {flag}",
        why="the daemon refuses to start when daemon.json says it too, and unit files are not ours to edit",
        fix=f"take the flag out of the file it is in, or have it say {docker_root}; then "
        "`sudo systemctl daemon-reload && sudo systemctl restart docker`",
        found=", ".join((*seen.storage.unit_files, "/etc/default/docker")),
        wanted=f"no --data-root, or one on {seen.facts.storage.path if seen.facts.storage else 'the storage mount'}",
    )


def _refuse_graph(seen: Seen) -> None:
    graph = _value(seen, "graph")
    if graph is not None:
        raise _fault(
            seen,
            f"{seen.storage.daemon_json_path} says where Docker's data is with the old key `graph`",
            why="`graph` and `data-root` mean the same; Docker 23 and newer do not start with `graph`",
            fix="rename it to `data-root` and restart Docker",
            found=f"graph: {graph}",
        )


def _refuse_explicit_containerd(seen: Seen) -> None:
    features = _value(seen, "features")
    if isinstance(features, dict) and features.get(_FEATURE) is True:
        raise _fault(
            seen,
            "Docker keeps its images in containerd, by explicit choice",
            why=f"{seen.storage.daemon_json_path} turns {_FEATURE} on; `data-root` does not move those images, "
            "and to turn it off would hide them",
            fix="move containerd's root onto the data disk (`root` in /etc/containerd/config.toml, restart containerd "
            f"and docker), or remove features.{_FEATURE} from daemon.json",
            found=f"containerd root {seen.docker.containerd_root or 'unknown'}",
        )


def _refuse_running(seen: Seen) -> None:
    running = seen.docker.running
    if not running:
        return
    survives = seen.info.keeps_containers_on_restart
    raise _fault(
        seen,
        f"{len(running)} containers are running",
        why="Docker must be restarted with another data folder, and they would not survive that"
        + (" (live-restore keeps containers over a restart, but not over a move)" if survives else ""),
        fix="stop them if they may go (`sudo docker stop NAME`), then run the same command again",
        found=", ".join(each.name for each in running),
    )


def _major(info: DockerInfo) -> int:
    head = info.version.partition(".")[0]
    return int(head) if head.isdigit() else 0


def _fault(seen: Seen, what: str, *, why: str, fix: str, **context: str) -> NodeError:
    return NodeError(what=f"{seen.node}: {what}", why=why, fix=fix, context={"node": seen.node, **context})
