"""Whether a node can take the weights and the engine at all, from what was read of it. Pure; everything cheap is here.

What needs GPUs is not here: weights may be staged on nodes that have none yet.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from k3deploy.domain.docker_facts import DockerFound, ImageFound
from k3deploy.domain.facts import Disk, NodeFacts
from k3deploy.domain.findings import Finding
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.units import bytes_text

FREE_INODES_MIN: Final = 10_000  # an image of this kind has some 100,000 files in few layers, the cache a few hundred
CLOCK_SKEW_WARN_S: Final = 30.0
PYTHON_MIN: Final = (3, 10)
DISK_CANDIDATE_MIN_BYTES: Final = 1_000_000_000


def findings(
    facts: NodeFacts, docker: DockerFound, image: ImageFound | None, profile: Profile, now: float
) -> tuple[Finding, ...]:
    """Everything that stops this node or should be said. `now`: the operator's clock, seconds since the epoch."""
    return (
        *_rights(facts),
        *_python(facts),
        *_services(facts),
        *_docker(facts, docker),
        *_storage(facts, image, profile),
        *_architecture(facts, profile),
        *_clock(facts, now),
    )


def _rights(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.is_root:
        yield Finding(
            "no root rights",
            why="Docker, its configuration and the data disk belong to root",
            fix=f"give {facts.login.name} sudo without a password, or log in as root",
        )


def _python(facts: NodeFacts) -> Iterator[Finding]:
    version = tuple(int(part) for part in facts.python_version.split(".")[:2])
    if version < PYTHON_MIN:
        yield Finding(
            f"python3 is {facts.python_version}",
            why="the download client needs 3.10 or newer",
            fix=f"{install_python(facts)}, or choose a newer image of the operating system",
            found=facts.python_version,
            wanted="3.10 or newer",
        )
    elif facts.python_missing_modules:
        yield Finding(
            "python3 lacks a part of its standard library",
            why="the download client needs it; distributions split it off",
            fix=install_python(facts),
            found="without " + ", ".join(facts.python_missing_modules),
            wanted="the full standard library",
        )


def install_python(facts: NodeFacts) -> str:
    """The command that installs the whole of Python on this system."""
    if facts.os_id in ("debian", "ubuntu"):
        return "`sudo apt-get update && sudo apt-get install -y python3`"
    if facts.os_id in ("rhel", "rocky", "almalinux", "centos", "fedora", "amzn", "ol"):
        return "`sudo dnf install -y python3`"
    return "install the full python3 with the system's package manager"


def _services(facts: NodeFacts) -> Iterator[Finding]:
    if facts.is_container and not facts.has_systemd:
        yield Finding(
            "this node is itself a container",
            why="it has no Docker of its own, and ports differ between its inside and its outside",
            fix="rent a virtual or a real machine instead of a container (pod)",
            found=f"PID 1 is {facts.pid_1 or 'unknown'}, no systemd",
        )
    elif not facts.has_systemd:
        yield Finding(
            "no systemd: long work runs as plain background processes",
            fix="nothing to do; it ends when the machine's session manager ends it",
            is_warning=True,
        )


def _docker(facts: NodeFacts, docker: DockerFound) -> Iterator[Finding]:
    client = facts.tools.get("docker") or ""
    root = docker.info.root if docker.info else ""
    if client.startswith("/snap/") or root.startswith("/var/snap/"):
        yield Finding(
            "Docker comes from snap",
            why="its confinement keeps it from GPUs, from daemon.json and from other disks",
            fix="remove the snap and install Docker from the distribution or from docker.com, or choose another image "
            "of the operating system",
            found=client or root,
        )
        return
    if docker.state == "absent":
        if not (facts.is_container and not facts.has_systemd):
            yield Finding(
                "Docker is not installed",
                why="the engine runs in a container",
                fix="install Docker and the NVIDIA container toolkit, or choose the provider's image that has both",
                found=docker.why,
            )
        return
    if docker.info is None:
        yield Finding(
            "Docker does not answer",
            why=docker.why,
            fix="`sudo systemctl start docker`; if it does not stay up, `sudo journalctl -u docker` says why",
        )
        return
    if not client:
        yield Finding(
            "there is no docker command",
            why="the engine is started with it; the daemon alone is there",
            fix="install the client: `sudo apt-get install -y docker-cli` (Debian, Ubuntu), or docker-ce-cli",
        )
    for option in docker.info.security:
        name = option.partition(",")[0].removeprefix("name=")
        if name in ("rootless", "userns"):
            yield Finding(
                f"Docker runs {'rootless' if name == 'rootless' else 'with remapped users (userns-remap)'}",
                why="the engine needs the host's network, pinned memory and devices as they are",
                fix="use the system's Docker daemon, without user namespaces",
                found=option,
            )


def _storage(facts: NodeFacts, image: ImageFound | None, profile: Profile) -> Iterator[Finding]:
    wanted, storage = profile.storage, facts.storage
    if storage is None:
        yield Finding(
            f"{wanted.mount} cannot be looked at",
            why=facts.why("storage") + _candidates(facts),
            fix=f"mount the data disk at {wanted.mount}, or set `storage.mount` in the profile",
            found=_mounts(facts),
        )
        return
    if storage.is_root or not storage.is_mount_point:
        size = bytes_text(storage.size_bytes)
        yield Finding(
            f"{wanted.mount} is not a disk of its own",
            why=f"it is a plain folder on {storage.mounted_at} ({storage.source}, {size}): the weights would fill "
            f"the root disk{_candidates(facts)}",
            fix=f"mount the data disk at {wanted.mount} (we format nothing), or set `storage.mount` in the profile "
            "to where it is mounted",
            found=_mounts(facts),
            wanted=f"a mount point with {bytes_text(_total_bytes(profile))}",
        )
        return
    if storage.is_read_only:
        yield Finding(f"{wanted.mount} is mounted read-only", fix=f"`sudo mount -o remount,rw {wanted.mount}`")
        return
    for path, mount in ((wanted.docker_root, wanted.mount), (wanted.hf_home, profile.weights_mount)):
        if not facts.paths[path].is_mounted:
            yield Finding(
                f"nothing is mounted at {mount}",
                why=f"it is a plain folder, so what goes to {path} would fill the root disk",
                fix=f"mount the volume at {mount} on this node, or correct `weights.volume` in the profile",
                found=_mounts(facts),
            )
        elif not facts.paths[path].is_on_mount:
            yield Finding(
                f"{path} would not be on {mount}",
                why="it is, or is below, a folder on another disk",
                fix=f"set it to a folder below {mount} in the profile (`storage`)",
            )
    if storage.shares_disk_with_root:
        yield Finding(
            f"{wanted.mount} is a partition of the disk that holds the root file system",
            fix="loading the weights will compete with the system for that disk",
            is_warning=True,
        )
    yield from _space(facts, image, profile)


def _space(facts: NodeFacts, image: ImageFound | None, profile: Profile) -> Iterator[Finding]:
    storage = facts.storage
    if storage is None:
        return
    wanted = profile.storage
    weights = Need("weights still to come", max(0, profile.model.all_bytes - (facts.weights_present_bytes or 0)))
    unpacked = Need("image", wanted.image_bytes if image is None else 0)
    if profile.weights_mount == wanted.mount:
        yield from _room(wanted.mount, storage.free_bytes, (weights, unpacked), wanted.margin_bytes)
    else:
        yield from _room(wanted.mount, storage.free_bytes, (unpacked,), wanted.margin_bytes)
        volume_free_bytes = facts.paths[wanted.hf_home].free_bytes
        yield from _room(profile.weights_mount, volume_free_bytes, (weights,), wanted.margin_bytes)
    if storage.free_inodes is not None and storage.free_inodes < FREE_INODES_MIN:
        yield Finding(
            f"only {storage.free_inodes} files can still be made on {wanted.mount}",
            why="the file system has run out of inodes",
            fix="remove small files there, or make the file system anew with more inodes",
            wanted=f"{FREE_INODES_MIN}",
        )


class Need(NamedTuple):
    """Something that still has to find room, and how much it takes."""

    what: str
    size_bytes: int


def _room(mount: str, free_bytes: int, needs: Sequence[Need], margin_bytes: int) -> Iterator[Finding]:
    missing = sum(need.size_bytes for need in needs)
    if free_bytes >= missing + margin_bytes:
        return
    parts = "".join(f"{need.what} {bytes_text(need.size_bytes)}, " for need in needs)
    yield Finding(
        f"{bytes_text(free_bytes)} free on {mount}, {bytes_text(missing + margin_bytes)} needed",
        why=f"{parts}margin {bytes_text(margin_bytes)}",
        fix=f"free space on {mount}, or rent nodes with a bigger disk",
        found=f"{free_bytes} bytes",
        wanted=f"{missing + margin_bytes} bytes",
        # With everything in place a tight disk is worth a word, not a stop.
        is_warning=missing == 0,
    )


def _total_bytes(profile: Profile) -> int:
    return profile.model.all_bytes + profile.storage.image_bytes + profile.storage.margin_bytes


def _mounts(facts: NodeFacts) -> str:
    """Every disk-backed file system with its size."""
    rows = [
        f"{each.path} on {each.source}" + (f", {bytes_text(each.size_bytes)}" if each.size_bytes is not None else "")
        for each in facts.mounts
    ]
    return "; ".join(rows) or "no file system on a disk"


def _candidates(facts: NodeFacts) -> str:
    """Disks that nobody uses: most likely the one that was forgotten. Named, never formatted."""
    unused = [disk for disk in facts.disks or () if disk.is_unused and disk.size_bytes >= DISK_CANDIDATE_MIN_BYTES]
    return f"; unused disks: {_disks(unused)}" if unused else ""


def _disks(disks: Sequence[Disk]) -> str:
    rows = [f"{disk.name} ({bytes_text(disk.size_bytes)}{', ' + disk.model if disk.model else ''})" for disk in disks]
    return ", ".join(rows)


def _architecture(facts: NodeFacts, profile: Profile) -> Iterator[Finding]:
    wanted = profile.hardware.cpu_architecture
    if facts.architecture != wanted:
        yield Finding(
            f"its CPU is {facts.architecture}, the profile's machines are {wanted}",
            why="engine images are built for one architecture",
            fix="use the profile that belongs to these machines",
            found=facts.architecture,
            wanted=wanted,
        )


def _clock(facts: NodeFacts, now: float) -> Iterator[Finding]:
    skew_s = facts.epoch_s - now
    if abs(skew_s) > CLOCK_SKEW_WARN_S:
        yield Finding(
            f"its clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} yours",
            fix="turn on time synchronisation (`sudo timedatectl set-ntp true`): logs and certificates depend on it",
            is_warning=True,
        )
