"""Options of `docker run` around the engine, in the order of the published four-node H100 launch."""

from collections.abc import Iterator

from k3deploy.domain.launch.base import Flag
from k3deploy.domain.profile.models import Profile

# One engine owns all GPUs of a node, so one name is enough; it is the one that the published launch uses.
CONTAINER_NAME = "sgl"
_STACK_BYTES = 67_108_864


def docker_options(
    profile: Profile, *, hf_home_inside: str, key_file: str | None, key_file_inside: str, uses_rdma: bool
) -> tuple[Flag, ...]:
    """`key_file` is a path on the node, or None where the engine needs no key."""
    return tuple(_options(profile, hf_home_inside, key_file, key_file_inside, uses_rdma=uses_rdma))


def _options(
    profile: Profile, hf_home_inside: str, key_file: str | None, key_file_inside: str, *, uses_rdma: bool
) -> Iterator[Flag]:
    yield Flag("-d", None, "k3deploy")
    yield Flag("--name", CONTAINER_NAME, "k3deploy")
    yield Flag("--gpus", "all", "k3deploy")
    yield Flag("--network", "host", "k3deploy")
    yield Flag("--ipc", "host", "k3deploy")
    yield Flag("--shm-size", profile.engine.shm_size, "profile:engine.shm_size")
    yield Flag("--ulimit", "memlock=-1", "k3deploy")
    yield Flag("--ulimit", f"stack={_STACK_BYTES}", "k3deploy")
    if uses_rdma:
        # Without the devices NCCL falls back to sockets and says so only in its log.
        yield Flag("--device", "/dev/infiniband", "k3deploy")
    yield Flag("-v", f"{profile.storage.hf_home}:{hf_home_inside}", "profile:storage.hf_home")
    if key_file is not None:
        yield Flag("-v", f"{key_file}:{key_file_inside}:ro", "k3deploy")
