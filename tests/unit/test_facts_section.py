"""The facts section against saved outputs of tools and small trees that stand for /proc and /sys."""

import json
import os
import socket
from pathlib import Path

import pytest

from k3deploy.remote.facts import disks, gpus, machine, memory, network
from k3deploy.remote.reading import Reader, Unreadable, tool
from k3deploy.remote.sections import connections
from k3deploy.remote.sections.facts import answer

# `ip -j -d addr` of a rented machine that also runs Docker and Kubernetes, cut to what is read.
IP_ADDR = [
    {"ifname": "lo", "flags": ["LOOPBACK", "UP", "LOWER_UP"], "mtu": 65536, "addr_info": [
        {"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]},
    {"ifname": "ens6", "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"], "mtu": 9000, "addr_info": [
        {"family": "inet", "local": "10.0.0.219", "prefixlen": 24, "scope": "global"},
        {"family": "inet", "local": "10.0.0.100", "prefixlen": 24, "scope": "global", "secondary": True},
        {"family": "inet6", "local": "fd00::219", "prefixlen": 64, "scope": "global", "temporary": True},
        {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}]},
    {"ifname": "ens7", "flags": ["NO-CARRIER", "BROADCAST", "UP"], "mtu": 1500, "addr_info": []},
    {"ifname": "kube-ipvs0", "flags": ["BROADCAST", "NOARP", "UP"], "mtu": 1500, "linkinfo": {"info_kind": "dummy"},
     "addr_info": [{"family": "inet", "local": "10.96.0.1", "prefixlen": 32, "scope": "global"}]},
    {},
]  # fmt: skip

# The columns of gpus.GPU_QUERY; memory as public logs of 8 x H100 print it.
H100_ROWS = "\n".join(
    f"{index}, NVIDIA H100 PCIe, GPU-{index:08d}, 81559, 4, 570.133.20, 00000000:{index + 1:02X}:00.0"
    for index in range(8)
)

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 254:16 / /ephemeral ro,relatime - ext4 /dev/vdb1 ro
25 22 254:16 /sub /mnt/with\\040blank rw - ext4 /dev/vdb1 rw
26 22 0:50 / /shared rw - nfs4 server:/x rw
"""


def test_interfaces_keep_lasting_global_addresses_only() -> None:
    found = {row["name"]: row for row in network.interfaces(json.dumps(IP_ADDR))}
    assert list(found) == ["lo", "ens6", "ens7", "kube-ipvs0"]
    assert found["lo"]["addresses"] == []
    assert found["ens6"]["addresses"] == [
        {"address": "10.0.0.219", "prefix": 24, "is_secondary": False},
        {"address": "10.0.0.100", "prefix": 24, "is_secondary": True},
    ]
    assert (found["ens6"]["is_up"], found["ens7"]["is_up"]) == (True, False)
    assert (found["ens6"]["kind"], found["kube-ipvs0"]["kind"]) == (None, "dummy")


def test_rdma_ports_with_their_state_as_the_kernel_words_it(tmp_path: Path) -> None:
    for device, state, layer, rate in (
        ("mlx5_0", "4: ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)"),
        ("mlx5_1", "1: DOWN", "Ethernet", "not a rate"),
    ):
        port = tmp_path / device / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(state + "\n")
        (port / "link_layer").write_text(layer + "\n")
        (port / "rate").write_text(rate + "\n")
    assert network.hcas(str(tmp_path)) == [
        {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "rate_gbps": 400.0},
        {"device": "mlx5_1", "port": 1, "state": "DOWN", "link_layer": "Ethernet", "rate_gbps": None},
    ]


def test_a_machine_without_rdma_has_an_empty_list() -> None:
    assert network.hcas("/nowhere/infiniband") == []


def test_gpu_rows_of_eight_h100() -> None:
    rows = gpus.gpu_rows(H100_ROWS)
    assert len(rows) == 8
    assert rows[7] == {
        "index": 7,
        "name": "NVIDIA H100 PCIe",
        "uuid": "GPU-00000007",
        "memory_total_mib": 81559,
        "memory_used_mib": 4,
        "driver": "570.133.20",
        "pci": "00000000:08:00.0",
    }


def test_gpu_rows_skip_words_about_a_lost_gpu_and_keep_missing_numbers_missing() -> None:
    text = (
        "Unable to determine the device handle for GPU0000:A1:00.0: Unknown Error\n"
        "0, NVIDIA GB300, GPU-0, [N/A], 3, 580.95.05, 0000:01:00.0"
    )
    rows = gpus.gpu_rows(text)
    assert [(row["index"], row["memory_total_mib"], row["memory_used_mib"]) for row in rows] == [(0, None, 3)]


def test_gpu_processes_know_their_container(tmp_path: Path) -> None:
    container = "ab" * 32
    (tmp_path / "proc/30211").mkdir(parents=True)
    (tmp_path / "proc/30211/cgroup").write_text(f"0::/system.slice/docker-{container}.scope\n")
    (tmp_path / "proc/30212").mkdir(parents=True)
    (tmp_path / "proc/30212/cgroup").write_text(f"5:memory:/docker/{container}\n")
    (tmp_path / "proc/30213").mkdir(parents=True)
    (tmp_path / "proc/30213/cgroup").write_text("0::/user.slice/user-1000.slice\n")
    csv = "30211, python, x, 21472, GPU-5\n30212, python3, 10, GPU-6\n30213, python3, 10, GPU-6\n40000, gone, 1, GPU-7"
    rows = gpus.process_rows(csv, str(tmp_path))
    assert [(row["pid"], row["name"], row["container"]) for row in rows] == [
        (30211, "python,x", container),
        (30212, "python3", container),
        (30213, "python3", None),
        (40000, "gone", None),
    ]


def test_gpus_on_the_bus_are_counted_by_vendor_and_class(tmp_path: Path) -> None:
    devices = {
        "0000:01:00.0": ("0x10de", "0x030200"),
        "0000:02:00.0": ("0x10de", "0x030000"),
        "0000:03:00.0": ("0x10de", "0x068000"),  # NVSwitch
        "0000:04:00.0": ("0x15b3", "0x020700"),  # a network card
    }
    for name, (vendor, kind) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    assert gpus.pci_gpus(str(tmp_path)) == 2


def test_mountinfo_with_blanks_and_read_only() -> None:
    table = disks.mounts(MOUNTINFO)
    assert [(row["path"], row["source"], row["fs_type"]) for row in table] == [
        ("/", "/dev/vda1", "ext4"),
        ("/proc", "proc", "proc"),
        ("/ephemeral", "/dev/vdb1", "ext4"),
        ("/mnt/with blank", "/dev/vdb1", "ext4"),
        ("/shared", "server:/x", "nfs4"),
    ]
    assert [row["is_read_only"] for row in table] == [False, False, True, False, False]


def test_a_storage_mount_that_is_a_plain_folder_is_on_the_root_disk() -> None:
    """The folder of this very checkout: whatever the machine, it is not a mount point."""
    folder = str(Path(__file__).parent)
    read = Reader()
    found = disks.disks(read, {"mount": folder, "paths": {f"{folder}/none": folder}, "blobs": [f"{folder}/none"]})
    assert found["storage"]["is_mount_point"] is False
    assert found["storage"]["mounted_at"] == _mount_point(folder)
    place = found["paths"][f"{folder}/none"]
    assert (place["exists"], place["is_on_mount"], place["is_mounted"]) == (False, True, False)
    space = os.statvfs(folder)
    assert place["free_bytes"] <= space.f_blocks * space.f_frsize
    assert found["disks"] is not None, "unused disks are named when the mount is wrong"


def _mount_point(path: str) -> str:
    place = Path(path)
    while not place.is_mount():
        place = place.parent
    return str(place)


def test_a_storage_mount_that_is_not_there_is_a_reason() -> None:
    read = Reader()
    found = disks.disks(read, {"mount": "/nowhere", "paths": {}, "blobs": ["/nowhere/blobs"]})
    assert found["storage"] is None
    assert read.reasons["storage"] == "/nowhere does not exist"


def test_a_file_system_is_known_by_its_link_under_by_uuid(tmp_path: Path) -> None:
    device = tmp_path / "dev/vdb1"
    folder = tmp_path / "dev/disk/by-uuid"
    folder.mkdir(parents=True)
    device.touch()
    (folder / "8517275e").symlink_to("../../vdb1")
    assert disks.file_system_uuid(str(device), str(tmp_path)) == "8517275e"


def test_disks_are_listed_with_what_is_on_them(tmp_path: Path) -> None:
    _disk(tmp_path, "vda", 254, 0, sectors=201326592, parts=["vda1"])
    _disk(tmp_path, "vdb", 254, 16, sectors=13530000000, parts=[])
    _disk(tmp_path, "loop0", 7, 0, sectors=100, parts=[])
    table = [{"path": "/", "device": "254:1", "source": "/dev/vda1", "fs_type": "ext4", "is_read_only": False}]
    found = {row["name"]: row for row in disks.block_devices(table, str(tmp_path))}
    assert set(found) == {"vda", "vdb"}
    assert (found["vda"]["mounted_at"], found["vda"]["parts"], found["vda"]["size_bytes"]) == (
        ["/"],
        ["vda1"],
        103079215104,
    )
    assert (found["vdb"]["mounted_at"], found["vdb"]["parts"]) == ([], [])


def _disk(root: Path, name: str, major: int, minor: int, *, sectors: int, parts: list[str]) -> None:
    place = root / "sys/block" / name
    place.mkdir(parents=True)
    (place / "size").write_text(f"{sectors}\n")
    (place / "dev").write_text(f"{major}:{minor}\n")
    for number, part in enumerate(parts, start=1):
        (place / part).mkdir()
        (place / part / "partition").write_text(f"{number}\n")
        (place / part / "dev").write_text(f"{major}:{minor + number}\n")


def test_bytes_of_weights_count_what_is_written_not_what_is_promised(tmp_path: Path) -> None:
    model, draft = tmp_path / "model", tmp_path / "draft"
    model.mkdir()
    draft.mkdir()
    (model / "whole").write_bytes(b"x" * 8192)
    (draft / "whole").write_bytes(b"x" * 4096)
    with (model / "half.incomplete").open("wb") as handle:
        handle.truncate(1 << 30)
    folders = [str(folder) for folder in (model, draft, tmp_path / "none")]
    found = disks.disks(Reader(), {"mount": "/", "blobs": folders})
    assert 8192 + 4096 <= found["weights_present_bytes"] < 1 << 20


def test_modules_that_a_minimal_python_lacks_are_named() -> None:
    assert machine.missing_modules(("json", "no_such_module", "no_such.part")) == ["no_such_module", "no_such.part"]


@pytest.mark.parametrize("content", ["", "uninitialized\n"])
def test_a_machine_id_that_is_not_made_yet_is_a_reason(tmp_path: Path, content: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text(content)
    read = Reader()
    assert machine.machine(read, str(tmp_path))["machine_id"] is None
    assert "holds no identity yet" in read.reasons["machine_id"]


MEMINFO = """\
MemTotal:       1887436800 kB
MemFree:         102400000 kB
MemAvailable:   1800000000 kB
"""


def lay_out(root: Path, files: dict[str, str]) -> str:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return str(root)


# 300 GB in use, 200 GB of them page cache: of a limit of 1000 GB, 900 GB can still be had.
V2 = {
    "sys/fs/cgroup/memory.max": "1000000000000\n",
    "sys/fs/cgroup/memory.current": "300000000000\n",
    "sys/fs/cgroup/memory.stat": "anon 100000000000\nfile 200000000000\n",
}
V1 = {
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000000000\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "300000000000\n",
    "sys/fs/cgroup/memory/memory.stat": "cache 0\ntotal_cache 200000000000\n",
}


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, 1_843_200_000_000),
        ({**V2, "sys/fs/cgroup/memory.max": "max\n"}, 1_843_200_000_000),
        ({**V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 1_843_200_000_000),
        (V2, 900_000_000_000),
        (V1, 900_000_000_000),
        ({**V2, "sys/fs/cgroup/memory.max": "50000000000\n"}, 0),
    ],
)
def test_memory_that_can_still_be_had(files: dict[str, str], wanted: int, tmp_path: Path) -> None:
    root = lay_out(tmp_path, {"proc/meminfo": MEMINFO, **files})
    assert (memory.memory_bytes(root), memory.memory_available_bytes(root)) == (1_932_735_283_200, wanted)


def test_memory_that_is_not_told_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="/proc/meminfo has no MemAvailable"):
        memory.memory_available_bytes(lay_out(tmp_path, {"proc/meminfo": "MemTotal: 1 kB\n"}))


def test_the_systems_name_is_read_with_and_without_quotes(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('PRETTY_NAME="Ubuntu 24.04.2 LTS"\nID=ubuntu\nVERSION_ID="24.04"\n')
    assert machine.machine(Reader(), str(tmp_path))["os"] == {
        "id": "ubuntu",
        "version": "24.04",
        "title": "Ubuntu 24.04.2 LTS",
    }


def test_a_tool_that_is_not_installed_or_hangs_is_a_reason() -> None:
    with pytest.raises(Unreadable, match="no-such-tool is not installed"):
        tool(["no-such-tool"])
    with pytest.raises(Unreadable, match=r"sleep gave no answer within 0\.05 s"):
        tool(["sleep", "60"], timeout_s=0.05)


def test_the_whole_section_answers_here_and_every_missing_fact_has_its_reason() -> None:
    found = json.loads(json.dumps(answer({"mount": "/", "paths": {"/var": "/"}, "blobs": ["/nowhere"]})))
    assert found["schema"] == 1
    assert found["storage"]["is_root"] is True
    missing = {
        name for name in ("os", "machine_id", "boot_id", "memory_bytes", "interfaces", "hcas") if found[name] is None
    }
    assert missing <= set(found["reasons"])


def test_established_connections_are_read_from_the_kernels_table() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            found = connections.answer({"port": port})["connections"]
    ends = {(row["local"], row["remote"], row["is_server"]) for row in found}
    assert ends == {("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "127.0.0.1", False)}


def test_ipv6_ends_are_read_in_the_kernels_word_order() -> None:
    # fd00::1 port 20000 (4E20) to fd00::2 port 43000 (A7F8), as a little-endian kernel prints it.
    row = "0: 000000FD000000000000000001000000:4E20 000000FD000000000000000002000000:A7F8 01 0 0 0 0 0 0 0"
    assert connections.established([row], 20000) == [("fd00::1", "fd00::2", True)]
