"""The program that is a node's power supply: it mounts the root disk, boots the machine, boots it again on reboot.

    python -m tests.lab.boot BOOT.json

It runs in a mount namespace of its own (`unshare --mount`), so the root disk is mounted nowhere else and goes away with
the node. Whoever starts it puts it into the node's cgroup, so that killing the cgroup is a power cut.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.lab.cgroups import STANDARD_MOUNT, Cgroup, machine_mount
from tests.lab.kernel import NETNS_FOLDER

GUEST_ASKED_FOR_REBOOT = 133
SHUTDOWN_SIGNAL = "SIGRTMIN+3"
SHARED_MOUNT = "/shared"
REBOOT_PAUSE_S = 1.0


@dataclass(frozen=True)
class BootSpec:
    """All that a node's boot needs to know."""

    hostname: str
    machine: str
    netns: str
    cgroup: str  # relative to the cgroup2 mount, which moves on the way (see _show_only_cgroup2)
    root_image: str
    root: str
    nvme_device: str
    # A folder of the machine that all nodes see as SHARED_MOUNT; empty: there is none.
    shared: str
    # Files to lay over the root disk before the first boot of a fresh one; removed once they are there.
    seed: str

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> BootSpec:
        return cls(**json.loads(path.read_text()))

    def nspawn_argv(self) -> list[str]:
        return [
            "systemd-nspawn",
            "--quiet",
            "--boot",
            "--register=no",  # this is no machine of the machine's own systemd (there may be none)
            "--keep-unit",
            f"--machine={self.machine}",
            f"--hostname={self.hostname}",
            f"--directory={self.root}",
            f"--network-namespace-path={NETNS_FOLDER / self.netns}",
            # dockerd wants what a real machine has
            "--capability=all",
            "--system-call-filter=@keyring bpf perf_event_open",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--console=pipe",
            f"--bind={self.nvme_device}:/dev/nvme0n1",
            *([f"--bind={self.shared}:{SHARED_MOUNT}"] if self.shared else []),
            f"--kill-signal={SHUTDOWN_SIGNAL}",
        ]


NSPAWN_ENV = {
    # dockerd writes to /proc/sys/net, which is the node's own; the rest of /proc/sys and /sys would be the machine's
    "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
    "SYSTEMD_NSPAWN_LOCK": "0",
}


def main(spec_path: str) -> int:
    spec = BootSpec.read(Path(spec_path))
    _prepare_cgroup(spec)
    root = Path(spec.root)
    root.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", spec.root_image, spec.root], check=True)
    _lay_seed(Path(spec.seed), root)
    _show_only_cgroup2()
    while True:
        print(f"lab: {spec.hostname} boots", flush=True)
        code = _run_machine(spec)
        print(f"lab: {spec.hostname} ended with {code}", flush=True)
        if code != GUEST_ASKED_FOR_REBOOT:
            return code
        time.sleep(REBOOT_PAUSE_S)  # a machine's firmware takes its time too; lets a watcher see it gone


def _prepare_cgroup(spec: BootSpec) -> None:
    """Make nspawn a cgroup beside ours (`supply`, chosen by who started us): cgroup2 wants processes in leaves only."""
    node = Cgroup(machine_mount() / spec.cgroup)
    node.child("machine").create()
    node.pass_controllers_down()


def _lay_seed(seed: Path, root: Path) -> None:
    if seed.is_dir():
        subprocess.run(["cp", "--archive", f"{seed}/.", str(root)], check=True)
        shutil.rmtree(seed)


def _show_only_cgroup2() -> None:
    """On a hybrid machine, give nspawn the cgroup2 tree at the standard place (here only: our mounts are private)."""
    if machine_mount() == STANDARD_MOUNT:
        return
    if subprocess.run(["umount", "--recursive", str(STANDARD_MOUNT)], check=False).returncode != 0:
        subprocess.run(["umount", "--lazy", str(STANDARD_MOUNT)], check=True)
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(STANDARD_MOUNT)], check=True)


def _run_machine(spec: BootSpec) -> int:
    machine = Cgroup(machine_mount() / spec.cgroup / "machine")

    def join() -> None:
        machine.add(os.getpid())

    with subprocess.Popen(spec.nspawn_argv(), env={**os.environ, **NSPAWN_ENV}, preexec_fn=join) as nspawn:
        signal.signal(signal.SIGTERM, lambda _number, _frame: nspawn.terminate())
        return nspawn.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
