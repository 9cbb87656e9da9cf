"""What controlling nodes costs: k3deploy against pyinfra and Ansible on the same four lab nodes, in the same run.

As root on Debian. Brings up a lab of its own and runs `k3deploy up` on it. Then, in alternated rounds:
  k3deploy up                 a run with nothing to do: at most 3 s and 0.6 s of client CPU (medians)
  k3deploy up --until facts   reads the facts of every node, cold
  pyinfra, Ansible            read the same facts, cold: at least 2 x and 10 x as long as the line above (medians)
Ansible runs them as one would write them, as `shell` tasks of a playbook. Prints both wall and CPU time. Exits
1 when a bound is broken. Rivals live in an environment of their own
(requirements/bench.txt).
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab import cache
from tests.lab.lab import Lab

ROOT = Path(__file__).resolve().parents[2]

ROUNDS = 7
NAME = "bench-control"
LOCK = ROOT / "requirements" / "bench.txt"

# The facts that k3deploy's probe reads (src/k3deploy/remote/facts), one command each, as one would ask by hand.
FACTS = (
    # machine.py
    "cat /etc/os-release",
    "uname -srm",
    "hostname",
    "date +%s",
    "cat /etc/machine-id",
    "cat /proc/sys/kernel/random/boot_id",
    "cat /proc/1/comm",
    "id",
    "cat /proc/meminfo",
    "ulimit -a",
    "python3 -c 'import asyncio, http, lzma, shutil, sqlite3, ssl, sys, zoneinfo; print(sys.version)'",
    "ls -l /usr/bin/docker /usr/bin/systemctl /usr/bin/nvidia-smi",
    # network.py
    "ip -j -d addr",
    "ip -j route show default",
    "ls /sys/class",
    "cat /proc/sys/net/ipv4/ip_local_port_range",
    # gpus.py
    "nvidia-smi --query-gpu=index,name,uuid,memory.total,memory.used,driver_version --format=csv,noheader",
    "nvidia-smi --query-compute-apps=pid,used_memory,gpu_uuid --format=csv,noheader",
    "ls /sys/bus/pci/devices",
    # disks.py
    "cat /proc/self/mountinfo",
    "df -B1 /ephemeral",
    "blkid -p -o value -s UUID /dev/nvme0n1",
    "du -s /ephemeral/hf",
)


def rivals() -> Path:
    """The bin folder of the environment that holds pyinfra and Ansible."""

    def install(draft: Path) -> None:
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--relocatable", str(draft / "venv")], check=True)
        python = str(draft / "venv" / "bin" / "python")
        subprocess.run(
            [*uv, "pip", "install", "--quiet", "--require-hashes", "--python", python, "-r", str(LOCK)], check=True
        )

    return cache.entry("bench", cache.recipe_hash(LOCK.read_bytes(), sys.version), install) / "venv" / "bin"


def environment(lab: Lab) -> dict[str, str]:
    """The lab's, where every program may keep its bytecode: an installed one has it, and so have the rivals here."""
    return {name: value for name, value in lab.exec_env().items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure(lab: Lab, argv: list[str], cwd: Path) -> tuple[float, float]:
    """Wall and CPU seconds of one run, its children included; the run must succeed."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            lab.exec_argv(argv), cwd=cwd, env=environment(lab), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            raise SystemExit(f"{argv} ended with {process.returncode}:\n{output.read().decode()[-3000:]}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime


def write_rivals(lab: Lab, folder: Path) -> tuple[list[str], list[str]]:
    """Inventories and tasks for both, and their command lines."""
    bin_folder, key, hosts = rivals(), str(lab.folder.key), lab.folder.known_hosts
    addresses = [str(node.names.address) for node in lab.nodes]
    (folder / "inventory.py").write_text(
        f"nodes = ({addresses!r}, {{'ssh_user': 'ubuntu', 'ssh_key': {key!r}, '_sudo': True, "
        f"'ssh_known_hosts_file': {str(hosts)!r}}})\n"
    )
    (folder / "facts.py").write_text(
        "from pyinfra import host\nfrom pyinfra.facts.server import Command\n"
        f"for line in {FACTS!r}:\n    host.get_fact(Command, command=line)\n"
    )
    (folder / "hosts.ini").write_text("[nodes]\n" + "\n".join(addresses) + "\n")
    tasks = "".join(f"    - ansible.builtin.shell: {line!r}\n      changed_when: false\n" for line in FACTS)
    (folder / "facts.yml").write_text(f"- hosts: nodes\n  gather_facts: false\n  become: true\n  tasks:\n{tasks}")
    (folder / "ansible.cfg").write_text(
        "[defaults]\nforks = 16\n[ssh_connection]\n"
        f"ssh_args = -o UserKnownHostsFile={hosts} -o ControlMaster=auto -o ControlPersist=1s\n"
    )
    pyinfra = [str(bin_folder / "pyinfra"), "-y", "inventory.py", "facts.py"]
    ansible = [
        *(str(bin_folder / "ansible-playbook"), "-i", "hosts.ini", "-u", "ubuntu", "--private-key", key, "facts.yml"),
    ]
    return pyinfra, ansible


def main() -> int:
    k3deploy = [str(ROOT / ".venv" / "bin" / "python"), "-m", "k3deploy"]
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab.up(NAME, profile="lab-h100x32", nodes=4)
        try:
            measure(lab, [*k3deploy, "up", "--profile", "lab-h100x32"], lab.folder.work)
            pyinfra, ansible = write_rivals(lab, Path(scratch))
            lines = {
                "k3deploy up (nothing to do)": ([*k3deploy, "up", "--profile", "lab-h100x32"], lab.folder.work),
                "k3deploy up --until facts": (
                    [*k3deploy, "up", "--profile", "lab-h100x32", "--until", "facts"],
                    lab.folder.work,
                ),
                "pyinfra, the same facts": (pyinfra, Path(scratch)),
                "Ansible, the same facts": (ansible, Path(scratch)),
            }
            seen: dict[str, list[tuple[float, float]]] = {name: [] for name in lines}
            for _ in range(ROUNDS):
                for name, (argv, cwd) in lines.items():
                    seen[name].append(measure(lab, argv, cwd))
        finally:
            lab.down()
    wall = {name: statistics.median(w for w, _ in runs) for name, runs in seen.items()}
    cpu = {name: statistics.median(c for _, c in runs) for name, runs in seen.items()}
    for name in lines:
        print(f"{name:<30} wall {wall[name]:6.2f} s   client CPU {cpu[name]:6.2f} s")
    noop, facts, by_pyinfra, by_ansible = lines
    checks = [
        ("nothing to do, wall at most 3 s", wall[noop], 3.0, wall[noop] <= 3.0),
        ("nothing to do, client CPU at most 0.6 s", cpu[noop], 0.6, cpu[noop] <= 0.6),
        ("pyinfra / k3deploy, at least 2", wall[by_pyinfra] / wall[facts], 2.0, wall[by_pyinfra] >= 2 * wall[facts]),
        ("Ansible / k3deploy, at least 10", wall[by_ansible] / wall[facts], 10, wall[by_ansible] >= 10 * wall[facts]),
    ]
    for name, value, bound, is_ok in checks:
        print(f"{name:<44} {value:6.2f} (bound {bound}) {'ok' if is_ok else 'BROKEN'}")
    print(
        f"for the record, CPU: pyinfra {cpu[by_pyinfra] / cpu[facts]:.1f} x, "
        f"Ansible {cpu[by_ansible] / cpu[facts]:.1f} x"
    )
    return 0 if all(is_ok for *_, is_ok in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
