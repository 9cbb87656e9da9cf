"""What the first look at a node found, typed. Parsed from the answer of `remote/sections/facts.py`; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.domain.command import Question
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.weights import cache_folder, wanted_repositories


def facts_question(profile: Profile) -> Question:
    """The one question for facts: whoever asks it this way shares its answer with everybody else."""
    storage = profile.storage
    return Question.of(
        "facts",
        mount=storage.mount,
        paths={storage.docker_root: storage.mount, storage.hf_home: profile.weights_mount},
        blobs=[f"{storage.hf_home}/hub/{cache_folder(repo)}/blobs" for repo, _ in wanted_repositories(profile.model)],
    )


@dataclass(frozen=True)
class NodeIdentity:
    """Tells a machine from the one that had its name before: another machine, a reboot, a wiped disk.

    Any part is None when it could not be read.
    """

    machine_id: str | None
    boot_id: str | None
    mount_uuid: str | None

    def as_dict(self) -> dict[str, str | None]:
        return {"machine_id": self.machine_id, "boot_id": self.boot_id, "mount_uuid": self.mount_uuid}


@dataclass(frozen=True)
class InterfaceAddress:
    address: str
    prefix: int
    is_secondary: bool = False


@dataclass(frozen=True)
class Interface:
    """`kind` is the kernel's word for a virtual link (bridge, dummy, veth, bond); None for a device."""

    name: str
    kind: str | None
    is_up: bool
    addresses: tuple[InterfaceAddress, ...]


@dataclass(frozen=True)
class GpuFound:
    """As nvidia-smi reports it. Memory in MiB; None where the driver prints [N/A]."""

    index: int
    name: str
    uuid: str
    memory_total_mib: int | None
    memory_used_mib: int | None
    driver: str
    pci: str


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds GPU memory. `container`: id of the Docker container it runs in, None for none."""

    pid: int
    name: str
    used_mib: int | None
    gpu_uuid: str
    container: str | None


@dataclass(frozen=True)
class Hca:
    """One RDMA port. `link_layer`: InfiniBand or Ethernet (RoCE)."""

    device: str
    port: int
    state: str
    link_layer: str
    rate_gbps: float | None

    @property
    def is_active(self) -> bool:
        return self.state == "ACTIVE"


@dataclass(frozen=True)
class Mount:
    """A file system on a local disk."""

    path: str
    source: str
    fs_type: str
    size_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True)
class StorageFound:
    """The file system that the profile's storage mount is on; space is what an ordinary user may still use.

    `device` is major:minor as stat(2) has it. `is_root`: it is the file system of `/`. `free_inodes` is None on
    file systems that count none.
    """

    path: str
    is_mount_point: bool
    mounted_at: str
    source: str
    device: str
    fs_type: str
    is_read_only: bool
    is_root: bool
    shares_disk_with_root: bool
    uuid: str | None
    size_bytes: int
    free_bytes: int
    free_inodes: int | None


@dataclass(frozen=True)
class Disk:
    """A whole disk. `signature`: what is on it ("" is nothing, None is not known)."""

    name: str
    size_bytes: int
    model: str
    mounted_at: tuple[str, ...]
    parts: tuple[str, ...]
    holders: tuple[str, ...]
    signature: str | None

    @property
    def is_unused(self) -> bool:
        """No partition, no file system, in no array, mounted nowhere."""
        return not (self.mounted_at or self.parts or self.holders) and self.signature == ""


@dataclass(frozen=True)
class PathFound:
    """A folder, there or still to be made. `is_on_mount`: on the file system of the mount point it belongs to.

    `is_mounted`: that mount point is one. `free_bytes`: what an ordinary user may still use there.
    """

    exists: bool
    is_on_mount: bool
    is_mounted: bool
    free_bytes: int


@dataclass(frozen=True)
class Login:
    """Who logged in, before sudo."""

    name: str
    uid: int
    gid: int
    home: str | None


@dataclass(frozen=True)
class NodeFacts:
    """Facts of one node. A value that is None could not be read: `reasons` says why, by the fact's name."""

    os_id: str | None
    os_version: str | None
    os_title: str | None
    kernel: str
    architecture: str
    python_version: str
    python_missing_modules: tuple[str, ...]
    hostname: str
    epoch_s: float
    identity: NodeIdentity
    login: Login
    is_root: bool
    pid_1: str | None
    has_systemd: bool
    is_container: bool
    memory_bytes: int | None
    memory_available_bytes: int | None  # caches give way, so they count as free
    memlock_limit_bytes: int | None
    tools: Mapping[str, str | None]
    interfaces: tuple[Interface, ...] | None
    default_address: str | None
    hcas: tuple[Hca, ...] | None
    port_range: tuple[int, int] | None
    gpus: tuple[GpuFound, ...] | None
    gpu_processes: tuple[GpuProcess, ...] | None
    nvidia_smi_exit_code: int | None
    nvidia_smi_words: str
    pci_gpus: int | None
    mounts: tuple[Mount, ...]
    storage: StorageFound | None
    paths: Mapping[str, PathFound]
    weights_present_bytes: int | None
    disks: tuple[Disk, ...] | None
    reasons: Mapping[str, str]

    def why(self, name: str) -> str:
        """The reason for a missing fact, for people."""
        return self.reasons.get(name, "the node did not say")

    @property
    def active_hcas(self) -> tuple[str, ...]:
        """Names of devices with an active RDMA port, each once."""
        return tuple(dict.fromkeys(hca.device for hca in self.hcas or () if hca.is_active))

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "NodeFacts":
        """From the section's answer. Raises KeyError or TypeError for an answer of another shape: a fault of ours."""
        system = body["os"] or {}
        smi = body["nvidia_smi"] or {}
        storage = body["storage"]
        login = body["login"]
        return NodeFacts(
            os_id=system.get("id"),
            os_version=system.get("version"),
            os_title=system.get("title"),
            kernel=body["kernel"],
            architecture=body["architecture"],
            python_version=body["python"]["version"],
            python_missing_modules=tuple(body["python"]["missing_modules"]),
            hostname=body["hostname"],
            epoch_s=body["epoch_s"],
            identity=NodeIdentity(body["machine_id"], body["boot_id"], storage["uuid"] if storage else None),
            login=Login(login["name"], login["uid"], login["gid"], login["home"]),
            is_root=body["is_root"],
            pid_1=body["pid_1"],
            has_systemd=body["has_systemd"],
            is_container=body["is_container"],
            memory_bytes=body["memory_bytes"],
            memory_available_bytes=body["memory_available_bytes"],
            memlock_limit_bytes=body["limits"]["memlock_bytes"],
            tools=dict(body["tools"]),
            interfaces=_maybe(body["interfaces"], _interface),
            default_address=body["default_address"],
            hcas=_maybe(body["hcas"], _hca),
            port_range=(body["port_range"][0], body["port_range"][1]) if body["port_range"] else None,
            gpus=_maybe(body["gpus"], lambda row: GpuFound(**row)),
            gpu_processes=_maybe(body["gpu_processes"], lambda row: GpuProcess(**row)),
            nvidia_smi_exit_code=smi.get("exit_code"),
            nvidia_smi_words=smi.get("words", ""),
            pci_gpus=body["pci_gpus"],
            mounts=tuple(_mount(row) for row in body["mounts"]),
            storage=_storage(storage) if storage else None,
            paths={path: PathFound(**row) for path, row in body["paths"].items()},
            weights_present_bytes=body["weights_present_bytes"],
            disks=_maybe(body["disks"], _disk),
            reasons=dict(body["reasons"]),
        )


def _maybe(rows: Sequence[Mapping[str, Any]] | None, read: Any) -> Any:
    return None if rows is None else tuple(read(row) for row in rows)


def _interface(row: Mapping[str, Any]) -> Interface:
    addresses = (InterfaceAddress(each["address"], each["prefix"], each["is_secondary"]) for each in row["addresses"])
    return Interface(row["name"], row["kind"], row["is_up"], tuple(addresses))


def _hca(row: Mapping[str, Any]) -> Hca:
    return Hca(row["device"], row["port"], row["state"], row["link_layer"], row["rate_gbps"])


def _mount(row: Mapping[str, Any]) -> Mount:
    return Mount(row["path"], row["source"], row["fs_type"], row["size_bytes"], row["free_bytes"])


def _storage(row: Mapping[str, Any]) -> StorageFound:
    names = StorageFound.__dataclass_fields__
    return StorageFound(**{name: row[name] for name in names})


def _disk(row: Mapping[str, Any]) -> Disk:
    return Disk(
        row["name"],
        row["size_bytes"],
        row["model"],
        tuple(row["mounted_at"]),
        tuple(row["parts"]),
        tuple(row["holders"]),
        row["signature"],
    )
