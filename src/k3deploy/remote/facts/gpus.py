"""GPUs as nvidia-smi reports them, GPUs as the PCI bus has them, and who holds GPU memory."""

import os
import re
from typing import Any

from k3deploy.remote.reading import Reader, ToolRun, Unreadable, finish, line, names, start, text

GPU_QUERY = ("index", "name", "uuid", "memory.total", "memory.used", "driver_version", "pci.bus_id")
PROCESS_QUERY = ("pid", "process_name", "used_memory", "gpu_uuid")
# Eight GPUs without the persistence daemon take several seconds to wake up.
NVIDIA_SMI_TIMEOUT_S = 45.0

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0302", "0x0300")  # 3D controller (data-centre GPUs), VGA controller


def gpus(read: Reader, root: str = "/") -> dict[str, Any]:
    """Both queries run at the same time. A failing nvidia-smi keeps its exit code and its own words."""
    answer: dict[str, Any] = {
        "gpus": None,
        "gpu_processes": None,
        "nvidia_smi": None,
        "pci_gpus": read.read("pci_gpus", lambda: pci_gpus(os.path.join(root, "sys/bus/pci/devices"))),
    }
    try:
        cards = start(["nvidia-smi", "--query-gpu=" + ",".join(GPU_QUERY), "--format=csv,noheader,nounits"])
        apps = start(["nvidia-smi", "--query-compute-apps=" + ",".join(PROCESS_QUERY), "--format=csv,noheader,nounits"])
    except Unreadable as reason:
        # No nvidia-smi is an answer: this machine offers no GPU.
        read.reasons["gpus"] = str(reason)
        return {**answer, "gpus": [], "gpu_processes": []}
    done = read.read("gpus", lambda: finish(cards, NVIDIA_SMI_TIMEOUT_S))
    if done is not None:
        answer["nvidia_smi"] = {"exit_code": done.exit_code, "words": _words(done)}
        answer["gpus"] = read.read("gpus", lambda: gpu_rows(done.stdout))
    listed = read.read("gpu_processes", lambda: finish(apps, NVIDIA_SMI_TIMEOUT_S))
    if listed is not None and listed.exit_code != 0:
        read.reasons["gpu_processes"] = _words(listed)
    elif listed is not None:
        answer["gpu_processes"] = read.read("gpu_processes", lambda: process_rows(listed.stdout, root))
    return answer


def gpu_rows(csv_text: str) -> list[dict[str, Any]]:
    """Rows of `--query-gpu`. Lines that are no row (a warning about a lost GPU) are left to the exit code."""
    rows = []
    for row in csv_text.splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) != len(GPU_QUERY) or not cells[0].isdigit():
            continue
        rows.append(
            {
                "index": int(cells[0]),
                "name": cells[1],
                "uuid": cells[2],
                "memory_total_mib": _mib(cells[3]),
                "memory_used_mib": _mib(cells[4]),
                "driver": cells[5],
                "pci": cells[6],
            }
        )
    return rows


def process_rows(csv_text: str, root: str = "/") -> list[dict[str, Any]]:
    """Rows of `--query-compute-apps`, each with the Docker container it runs in, by its control group."""
    rows = []
    for row in csv_text.splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) < len(PROCESS_QUERY) or not cells[0].isdigit():
            continue
        pid = int(cells[0])
        rows.append(
            {
                "pid": pid,
                "name": ",".join(cells[1:-2]),  # a process name may hold commas
                "used_mib": _mib(cells[-2]),
                "gpu_uuid": cells[-1],
                "container": container_of(pid, root),
            }
        )
    return rows


def container_of(pid: int, root: str = "/") -> str | None:
    """The id of the Docker container that a process belongs to; None for a process of the machine itself."""
    try:
        groups = text(os.path.join(root, f"proc/{pid}/cgroup"))
    except Unreadable:  # it ended meanwhile
        return None
    match = re.search(r"docker[/-]([0-9a-f]{64})", groups)
    return match.group(1) if match else None


def pci_gpus(folder: str) -> int:
    """How many NVIDIA display devices the bus has; a GPU that fell off it is in neither list."""
    found = 0
    for device in names(folder):
        vendor = line(os.path.join(folder, device, "vendor"))
        if vendor == NVIDIA_VENDOR and line(os.path.join(folder, device, "class")).startswith(DISPLAY_CLASSES):
            found += 1
    return found


def _mib(cell: str) -> int | None:
    """GB300 and MIG modes print [N/A] for some cells."""
    return int(cell) if cell.isdigit() else None


def _words(done: ToolRun) -> str:
    """What nvidia-smi said besides rows; it writes errors on stdout as often as on stderr."""
    rows = [row for row in done.stdout.splitlines() if not row.split(",")[0].strip().isdigit()]
    return "\n".join([*rows, *done.stderr.splitlines()]).strip()
