#!/usr/bin/python3
"""nvidia-smi for a node without GPUs: the formats of the real one, from /etc/lab/gpus.json and what engines report.

One file, standard library only: the lab installs it as /usr/bin/nvidia-smi. /etc/lab/gpus.json holds
{"count": 8, "name": "NVIDIA H100 PCIe", "memory_total_mib": 81559, "driver": "580.95.05", "faults": {...}}; faults are

- "lost": [3]             GPU 3 has fallen off the bus
- "occupied": {"2": 20000} MiB that a foreign process holds on GPU 2 (or {"2": {"mib": 20000, "pid": 4711}})
- "driver_mismatch": true  the tool can't talk to the driver
- "no_driver": true        there is no driver
- "ecc": {"1": 3}          uncorrected errors on GPU 1

Memory in use is what the stand-in engines say: each container's root has a file with its workers and their memory.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

CONFIG = Path(os.environ.get("LAB_GPUS", "/etc/lab/gpus.json"))
PROC = Path(os.environ.get("LAB_PROC", "/proc"))
STATE = os.environ.get("LAB_STATE", "run/lab-engine/state.json")
_IDLE_MIB = 4
_FOREIGN_PID = 4711
_COMPUTE = {"H100": "9.0", "H200": "9.0", "GB200": "10.0", "B200": "10.0", "GB300": "10.3", "B300": "10.3"}
_FIELDS = {
    "index", "name", "gpu_name", "uuid", "gpu_uuid", "memory.total", "memory.used", "memory.free", "memory.reserved",
    "driver_version", "compute_cap", "pci.bus_id", "gpu_bus_id", "serial", "count", "timestamp", "pstate",
    "temperature.gpu", "power.draw", "power.limit", "utilization.gpu", "utilization.memory", "compute_mode",
    "persistence_mode", "mig.mode.current", "ecc.mode.current", "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.total", "ecc.errors.corrected.volatile.total", "clocks.sm",
    "remapped_rows.pending", "remapped_rows.failure", "clocks_throttle_reasons.active",
    "clocks_event_reasons.active",
}  # fmt: skip
_APP_FIELDS = {"pid", "process_name", "name", "used_memory", "used_gpu_memory", "gpu_uuid", "gpu_name", "gpu_bus_id"}
_UNITS = {
    "memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "memory.reserved": "MiB",
    "used_memory": "MiB", "used_gpu_memory": "MiB", "power.draw": "W", "power.limit": "W", "utilization.gpu": "%",
    "utilization.memory": "%", "clocks.sm": "MHz",
}  # fmt: skip


def main() -> int:
    """Answer one call; returns the exit code."""
    if "--lab-usage" in sys.argv:
        print(json.dumps(engine_processes()[0]))
        return 0
    config = read_config()
    faults = config.get("faults") or {}
    if config.get("count", 0) == 0 or faults.get("no_driver"):
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n"
        )
        return 9
    if faults.get("driver_mismatch"):
        print("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95")
        return 18
    args = parse(sys.argv[1:])
    gpus = list_gpus(config)
    if args.id is not None:
        gpus = [gpu for gpu in gpus if args.id in (str(gpu["index"]), gpu["uuid"])]
        if not gpus:
            print("No devices were found")
            return 6
    if args.list_gpus:
        for gpu in gpus:
            print(lost(gpu) if gpu["is_lost"] else f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
        return 0
    if args.query_gpu is not None:
        return query_gpus(gpus, args.query_gpu.split(","), args.format)
    if args.query_compute_apps is not None:
        return query_apps(gpus, args.query_compute_apps.split(","), args.format)
    if any(gpu["is_lost"] for gpu in gpus):
        print(next(lost(gpu) for gpu in gpus if gpu["is_lost"]))
        return 15
    print(table(gpus, config))
    return 0


def read_config() -> dict[str, Any]:
    """The node's GPUs; no file means no driver."""
    try:
        found: dict[str, Any] = json.loads(CONFIG.read_text(encoding="utf-8"))
    except OSError:
        return {}
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        bad = message.rpartition(": ")[2].split(" ")[0]
        print(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{bad}")
        sys.exit(1)


def parse(argv: list[str]) -> argparse.Namespace:
    """The options that people and programs use."""
    parser = _Parser(prog="nvidia-smi", allow_abbrev=False)
    parser.add_argument("-L", "--list-gpus", action="store_true")
    parser.add_argument("-i", "--id")
    parser.add_argument("--query-gpu")
    parser.add_argument("--query-compute-apps")
    parser.add_argument("--format", default=None)
    args = parser.parse_args(argv)
    is_query = args.query_gpu is not None or args.query_compute_apps is not None
    if is_query and "csv" not in (args.format or "").split(","):
        print("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n")
        sys.exit(2)
    return args


def list_gpus(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Each GPU with its memory in use and its processes, lost ones included."""
    faults = config.get("faults") or {}
    processes = usage()
    gpus = []
    for index in range(config["count"]):
        apps = [process for process in processes if process["gpu"] == index]
        held = (faults.get("occupied") or {}).get(str(index))
        if held:
            foreign = held if isinstance(held, dict) else {"mib": held}
            apps.append({"pid": foreign.get("pid", _FOREIGN_PID), "mib": foreign["mib"], "name": "python3"})
        used = _IDLE_MIB if not apps else sum(int(app["mib"]) for app in apps)
        gpus.append(
            {
                "index": index,
                "name": config["name"],
                "uuid": uuid_of(config, index),
                "bus_id": f"00000000:{(index + 1) * 16:02X}:00.0",
                "total": config["memory_total_mib"],
                "used": min(used, config["memory_total_mib"]),
                "driver": config["driver"],
                "apps": apps,
                "is_lost": index in (faults.get("lost") or []),
                "uncorrected": (faults.get("ecc") or {}).get(str(index), 0),
            }
        )
    return gpus


def uuid_of(config: dict[str, Any], index: int) -> str:
    """The same on each call, another one on each node."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="utf-8").strip()
    except OSError:
        machine = ""
    seed = (config.get("serial") or machine or "0" * 32)[:24].ljust(24, "0")
    return f"GPU-{seed[:8]}-{seed[8:12]}-{seed[12:16]}-{seed[16:20]}-{seed[20:24]}{index:08x}"


def usage() -> list[dict[str, Any]]:
    """GPU memory by process. Another user's processes hide their root, so ask again as root where sudo allows it."""
    seen, is_hidden = engine_processes()
    if is_hidden:
        asked = subprocess.run(
            ["sudo", "-n", sys.executable, __file__, "--lab-usage"], capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            found: list[dict[str, Any]] = json.loads(asked.stdout)
            return found
    return seen


def engine_processes() -> tuple[list[dict[str, Any]], bool]:
    """The workers of all engines that are alive, by the process ids of this node; whether any were hidden from us."""
    found, is_hidden = [], False
    states: dict[tuple[int, int], dict[str, Any]] = {}
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if not (folder / "comm").read_text(encoding="utf-8").startswith("sglang::schedul"):
                continue
            root = (folder / "root").stat()
            key = (root.st_dev, root.st_ino)
            if key not in states:
                states[key] = json.loads((folder / "root" / STATE).read_text(encoding="utf-8"))
            inner = inner_pid(folder)
        except PermissionError:
            is_hidden = True
            continue
        except (OSError, ValueError):
            continue
        for gpu in states[key]["gpus"]:
            if gpu["pid"] == inner:
                name = "sglang::scheduler_TP" + str(gpu["tp_rank"])
                found.append({"gpu": gpu["index"], "pid": int(folder.name), "mib": gpu["used_mib"], "name": name})
    return sorted(found, key=lambda process: (process["gpu"], process["pid"])), is_hidden


def inner_pid(folder: Path) -> int:
    """The process id inside the innermost namespace."""
    for line in (folder / "status").read_text(encoding="utf-8").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return int(folder.name)


def lost(gpu: dict[str, Any]) -> str:
    """The line about a GPU that has fallen off the bus."""
    return (
        f"Unable to determine the device handle for GPU{gpu['index']}: {gpu['bus_id'][4:]}: "
        "GPU is lost.  Reboot the system to recover this GPU"
    )


def query_gpus(gpus: list[dict[str, Any]], fields: list[str], form: str) -> int:
    """One CSV row for each GPU."""
    fields = [field.strip() for field in fields]
    if (bad := [field for field in fields if field not in _FIELDS]) != []:
        print(f'Field "{bad[0]}" is not a valid field to query.\n')
        return 2
    rows, code = [], 0
    for gpu in gpus:
        if gpu["is_lost"]:
            code = 15
            print(lost(gpu), file=sys.stderr)
            continue
        rows.append([gpu_value(gpu, field, len(gpus)) for field in fields])
    print_csv(fields, rows, form)
    return code


def gpu_value(gpu: dict[str, Any], field: str, count: int) -> str:
    """One field of one GPU, without its unit."""
    compute = next((cap for key, cap in sorted(_COMPUTE.items(), reverse=True) if key in gpu["name"]), "9.0")
    known: dict[str, Any] = {
        "index": gpu["index"],
        "name": gpu["name"],
        "gpu_name": gpu["name"],
        "uuid": gpu["uuid"],
        "gpu_uuid": gpu["uuid"],
        "memory.total": gpu["total"],
        "memory.used": gpu["used"],
        "memory.free": gpu["total"] - gpu["used"],
        "memory.reserved": 0,
        "driver_version": gpu["driver"],
        "compute_cap": compute,
        "pci.bus_id": gpu["bus_id"],
        "gpu_bus_id": gpu["bus_id"],
        "serial": 1_650_000_000_000 + gpu["index"],
        "count": count,
        "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
        "pstate": "P0",
        "temperature.gpu": 31,
        "power.draw": "48.20",
        "power.limit": "350.00",
        "utilization.gpu": 0,
        "utilization.memory": 0,
        "compute_mode": "Default",
        "persistence_mode": "Enabled",
        "mig.mode.current": "Disabled",
        "ecc.mode.current": "Enabled",
        "ecc.errors.uncorrected.volatile.total": gpu["uncorrected"],
        "ecc.errors.uncorrected.aggregate.total": gpu["uncorrected"],
        "ecc.errors.corrected.volatile.total": 0,
        "clocks.sm": 345,
        "remapped_rows.pending": "No",
        "remapped_rows.failure": "No",
        "clocks_throttle_reasons.active": "0x0000000000000001",
        "clocks_event_reasons.active": "0x0000000000000001",
    }
    return str(known[field])


def query_apps(gpus: list[dict[str, Any]], fields: list[str], form: str) -> int:
    """One CSV row for each process."""
    fields = [field.strip() for field in fields]
    if (bad := [field for field in fields if field not in _APP_FIELDS]) != []:
        print(f'Field "{bad[0]}" is not a valid field to query.\n')
        return 2
    rows = []
    for gpu in gpus:
        for app in gpu["apps"]:
            known = {
                "pid": app["pid"],
                "process_name": app["name"],
                "name": app["name"],
                "used_memory": app["mib"],
                "used_gpu_memory": app["mib"],
                "gpu_uuid": gpu["uuid"],
                "gpu_name": gpu["name"],
                "gpu_bus_id": gpu["bus_id"],
            }
            rows.append([str(known[field]) for field in fields])
    print_csv(fields, rows, form)
    return 0


def print_csv(fields: list[str], rows: list[list[str]], form: str) -> None:
    """The tool's CSV: units in the header and behind the values unless told otherwise."""
    switches = form.split(",")
    has_units = "nounits" not in switches
    if "noheader" not in switches:
        print(", ".join(f"{field} [{_UNITS[field]}]" if field in _UNITS else field for field in fields))
    for row in rows:
        pairs = zip(fields, row, strict=True)
        print(", ".join(f"{v} {_UNITS[f]}" if has_units and f in _UNITS else v for f, v in pairs))


def table(gpus: list[dict[str, Any]], config: dict[str, Any]) -> str:
    """The plain call's picture: three columns for each GPU, then the processes."""
    cuda = config.get("cuda") or ("13.0" if str(config["driver"]) >= "580" else "12.8")
    widths = (41, 24, 22)
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    wide = "+" + "-" * 89 + "+"

    def row(*cells: str) -> str:
        return "|" + "|".join(f" {cell:<{width - 2}} " for cell, width in zip(cells, widths, strict=True)) + "|"

    driver = config["driver"]
    heading = f"NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda}"
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y"),
        wide,
        f"| {heading:<87} |",
        rule,
        row("GPU  Name                 Persistence-M", "Bus-Id          Disp.A", "Volatile Uncorr. ECC"),
        row("Fan  Temp   Perf          Pwr:Usage/Cap", f"{'Memory-Usage':>22}", "GPU-Util  Compute M."),
        row("", "", f"{'MIG M.':>20}"),
        f"|{'=' * 41}+{'=' * 24}+{'=' * 22}|",
    ]
    for gpu in gpus:
        memory = f"{gpu['used']}MiB / {gpu['total']}MiB"
        lines += [
            row(
                f"{gpu['index']:>3}  {gpu['name']:<31} On", f"{gpu['bus_id'] + ' Off':>22}", f"{gpu['uncorrected']:>20}"
            ),
            row("N/A   31C    P0             48W /  350W", f"{memory:>22}", f"{'0%      Default':>20}"),
            row("", "", f"{'Disabled':>20}"),
            rule,
        ]
    lines += ["", wide, f"| {'Processes:':<87} |"]
    lines.append(f"| {' GPU   GI   CI              PID   Type   Process name':<70}{'GPU Memory':>17} |")
    lines.append("|" + "=" * 89 + "|")
    apps = [(gpu["index"], app) for gpu in gpus for app in gpu["apps"]]
    for index, app in apps:
        left = f"{index:>5}   N/A  N/A {app['pid']:>16}      C   {app['name']}"
        lines.append(f"| {left:<70}{str(app['mib']) + 'MiB':>17} |")
    if not apps:
        lines.append(f"| {' No running processes found':<87} |")
    return "\n".join([*lines, wide])


if __name__ == "__main__":
    sys.exit(main())
