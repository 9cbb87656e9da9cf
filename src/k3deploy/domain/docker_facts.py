"""What a node's Docker daemon said, typed. Parsed from the answers of `remote/sections/{docker,image}.py`; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3deploy.domain.command import Question

CONTAINERD_STORE = "io.containerd.snapshotter.v1"


def docker_question() -> Question:
    """Ask about the daemon and its containers."""
    return Question.of("docker")


def image_question(reference: str) -> Question:
    """Ask whether an image is there under this very reference."""
    return Question.of("image", reference=reference)


@dataclass(frozen=True)
class ContainerFound:
    """`state` as Docker words it: created, running, paused, restarting, exited, dead."""

    id: str
    name: str
    image: str
    state: str

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "paused", "restarting")


@dataclass(frozen=True)
class ImageFound:
    """A local image. `digests`: repository@digest names; `requires`: its NVIDIA_REQUIRE_* variables."""

    id: str
    digests: tuple[str, ...]
    architecture: str
    os: str
    size_bytes: int
    requires: tuple[str, ...]

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "ImageFound | None":
        """From the answer of `remote/sections/image.py`."""
        row = body["image"]
        if row is None:
            return None
        return ImageFound(
            id=row["id"],
            digests=tuple(row["digests"]),
            architecture=row["architecture"],
            os=row["os"],
            size_bytes=row["size_bytes"],
            requires=tuple(row["requires"]),
        )


@dataclass(frozen=True)
class DockerInfo:
    """`root_device` is the major:minor of the file system that `root` is on."""

    version: str
    root: str
    root_device: str | None
    driver: str
    driver_type: str | None
    runtimes: tuple[str, ...]
    security: tuple[str, ...]
    keeps_containers_on_restart: bool
    image_count: int
    cdi_devices: tuple[str, ...]

    @property
    def keeps_images_in_containerd(self) -> bool:
        """Then the daemon's own root holds no image layer (the default of a fresh Docker 29 or newer)."""
        return self.driver_type == CONTAINERD_STORE


@dataclass(frozen=True)
class DockerFound:
    """`state`: answers, silent or absent; `info` is None unless it answers.

    `containerd_root_device` is known only for a daemon that keeps its images in containerd.
    """

    state: str
    why: str
    gpu_hooks: tuple[str, ...]
    cdi_specs: tuple[str, ...]
    info: DockerInfo | None
    containers: tuple[ContainerFound, ...]
    containerd_root: str | None = None
    containerd_root_device: str | None = None

    @property
    def running(self) -> tuple[ContainerFound, ...]:
        return tuple(each for each in self.containers if each.is_running)

    @property
    def gives_gpus(self) -> bool:
        """Whether `docker run --gpus all` can work: by the NVIDIA runtime, its hook, or CDI devices."""
        if self.gpu_hooks or self.cdi_specs:
            return True
        info = self.info
        return info is not None and ("nvidia" in info.runtimes or any("nvidia" in each for each in info.cdi_devices))

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "DockerFound":
        """From the section's answer. Raises KeyError or TypeError for an answer of another shape: a fault of ours."""
        info = body["info"]
        containerd = body["containerd_root"] or {}
        return DockerFound(
            state=body["state"],
            why=body["why"],
            gpu_hooks=tuple(body["gpu_hooks"]),
            cdi_specs=tuple(body["cdi_specs"]),
            info=_info(info) if info else None,
            containers=tuple(ContainerFound(**row) for row in body["containers"]),
            containerd_root=containerd.get("path"),
            containerd_root_device=containerd.get("device"),
        )


def _info(row: Mapping[str, Any]) -> DockerInfo:
    return DockerInfo(
        version=row["version"],
        root=row["root"],
        root_device=row["root_device"],
        driver=row["driver"],
        driver_type=row["driver_type"],
        runtimes=tuple(row["runtimes"]),
        security=tuple(row["security"]),
        keeps_containers_on_restart=row["keeps_containers_on_restart"],
        image_count=row["image_count"],
        cdi_devices=tuple(row["cdi_devices"]),
    )
