"""One node: its disks, its power switch, and the ways in that a provider has and a tenant has not.

Whatever the lab itself must know of a running node (is it up, which host key did it make) is read from the machine's
side, so that waiting for a node does not depend on what is being waited for.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import disks, faults, network, operator_files
from tests.lab.boot import BootSpec
from tests.lab.cgroups import Cgroup, machine_mount
from tests.lab.commands import machine_env, tail
from tests.lab.deadline import wait_for
from tests.lab.errors import LabError
from tests.lab.folders import REPOSITORY, LabFolder
from tests.lab.naming import CONTROL_ADDRESS
from tests.lab.node_image import DOCKER_UNITS, NODE_FILES, UBUNTU_UID, mask
from tests.lab.processes import spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.hardware import Hardware
    from tests.lab.naming import LabNames, NodeNames

SSH_TIMEOUT_S = 180.0
DOCKER_TIMEOUT_S = 180.0
USER = "ubuntu"
INVENTORY = NODE_FILES / "inventory.py"


@dataclass(frozen=True)
class Node:
    """A machine of the lab."""

    names: NodeNames
    lab: LabNames
    folder: LabFolder
    hardware: Hardware
    has_docker: bool
    nvme_gib: int
    has_shared: bool = False

    @property
    def name(self) -> str:
        return self.names.name

    @property
    def own_folder(self) -> Path:
        return self.folder.node(self.name)

    @property
    def console(self) -> Path:
        """What the machine prints while it boots: where to look when it does not."""
        return self.own_folder / "console.log"

    @property
    def _mount(self) -> Path:
        return self.own_folder / "root"

    @property
    def cgroup_name(self) -> str:
        return f"{self.lab.cgroup}/{self.name}"

    @property
    def cgroup(self) -> Cgroup:
        return Cgroup(machine_mount() / self.cgroup_name)

    # --- disks and power

    def create(self) -> None:
        """A machine just rented: fresh root disk, blank NVMe, no identity yet."""
        self.own_folder.mkdir(parents=True, exist_ok=True)
        self.renew_root()
        disks.blank_nvme(self.folder, self.name, self.nvme_gib)

    def renew_root(self) -> None:
        disks.fresh_root(self.folder, self.name)
        self._seed()

    def renew_nvme(self) -> None:
        disks.detach(disks.nvme_image(self.folder, self.name))
        disks.blank_nvme(self.folder, self.name, self.nvme_gib)

    def _seed(self) -> None:
        """What a provider writes into a new machine: name, the tenant's key, and here the GPUs it has."""
        seed = self.own_folder / "seed"
        shutil.rmtree(seed, ignore_errors=True)
        for folder in ("etc/lab", "etc/systemd/system", "home/ubuntu/.ssh"):
            (seed / folder).mkdir(parents=True)
        (seed / "etc/hostname").write_text(f"{self.name}\n")
        (seed / "etc/hosts").write_text(self._hosts())
        (seed / "etc/lab/gpus.json").write_text(json.dumps(self.hardware.gpus_json(), indent=1) + "\n")
        if not self.has_docker:
            for unit in DOCKER_UNITS:
                mask(seed / "etc/systemd/system", unit)
        self._authorize(seed / "home/ubuntu")

    def _hosts(self) -> str:
        """The node's name leads to a loopback address, as on stock Debian: a trap that engines do fall into."""
        services = f"{CONTROL_ADDRESS} registry.lab hub.lab s3.lab"
        return f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n::1 localhost ip6-localhost\n{services}\n"

    def _authorize(self, home: Path) -> None:
        keys = home / ".ssh/authorized_keys"
        shutil.copyfile(self.folder.key.with_suffix(".pub"), keys)
        for path, mode in ((home, 0o700), (keys.parent, 0o700), (keys, 0o600)):
            os.chown(path, UBUNTU_UID, UBUNTU_UID)
            path.chmod(mode)

    def start(self) -> None:
        """Press the power button. Returns at once; `wait` tells when it is there."""
        if self.is_running():
            return
        self.cgroup.kill()  # a machine that shut itself down leaves an empty one
        spec = BootSpec(
            hostname=self.name,
            machine=self.names.machine,
            netns=self.names.netns,
            cgroup=self.cgroup_name,
            root_image=str(disks.root_image(self.folder, self.name)),
            root=str(self._mount),
            nvme_device=disks.attach(disks.nvme_image(self.folder, self.name)),
            shared=str(self.folder.shared) if self.has_shared else "",
            seed=str(self.own_folder / "seed"),
        )
        path = self.own_folder / "boot.json"
        spec.write(path)
        env = machine_env() | {"PYTHONPATH": str(REPOSITORY)}
        argv = ["unshare", "--mount", "--propagation=private", sys.executable, "-m", "tests.lab.boot", str(path)]
        supply = self.cgroup.child("supply")
        supply.create()
        spawn(argv, log=self.console, env=env, cgroup=supply)

    def cut_power(self) -> None:
        """What a hypervisor does to a machine it takes away: every process gone at once, no goodbye."""
        self.cgroup.kill()

    def is_running(self) -> bool:
        return self.cgroup.is_populated()

    def state(self) -> str:
        if not self.is_running():
            return "off"
        memory = self.cgroup.memory_bytes()
        suffix = f", {memory >> 20} MiB" if memory else ""
        return ("up" if network.answers_ssh(self.lab, self.names.address) else "on, but not answering SSH") + suffix

    # --- the provider's view

    def leader_pid(self) -> int | None:
        """The machine's pid of the node's pid 1, once nspawn has started it."""
        pids = self.cgroup.child("machine").child("payload").child("init.scope").pids()
        return pids[0] if pids else None

    def path_inside(self, path: str) -> Path:
        """A path of the running node as the machine can open it, /run and /ephemeral included."""
        pid = self.leader_pid()
        if pid is None:
            raise LabError(f"{self.name} is not running", fix=f"scripts/lab fault {self.name} start")
        return Path(f"/proc/{pid}/root") / path.lstrip("/")

    def host_key(self) -> str:
        """The public host key that the node made for itself, as a provider's console shows it."""
        text = self.path_inside("/etc/ssh/ssh_host_ed25519_key.pub").read_text()
        return " ".join(text.split()[:2])

    def wait(self, *, for_docker: bool = True) -> None:
        """Until the node answers SSH (and its dockerd a request); then learn its host key."""
        self._wait_for("sshd answers", lambda: network.answers_ssh(self.lab, self.names.address), SSH_TIMEOUT_S)
        if for_docker and self.has_docker:
            self._wait_for("dockerd answers", self._answers_docker, DOCKER_TIMEOUT_S)
        self._known_hosts.write_text(f"{self.names.address} {self.host_key()}\n")
        operator_files.collect_known_hosts(self.folder)

    def _wait_for(self, what: str, probe: Callable[[], bool], timeout_s: float) -> None:
        def check() -> bool:
            if not self.is_running():
                raise LabError("it ended")
            return probe()

        try:
            wait_for(f"{self.name}: {what}", check, timeout_s)
        except LabError as err:
            log = tail(self.console.read_text(errors="replace")) if self.console.exists() else "(no console output)"
            raise LabError(
                f"{self.name} did not come up: {what}: {err.what}",
                why=f"the end of its console:\n{log}",
                fix=f"read {self.name}'s console log in full; a bad image is gone with node-image-* in the cache",
            ) from err

    def _answers_docker(self) -> bool:
        """Ping dockerd over its own socket, reached through the node's pid 1; no SSH, no client."""
        try:
            path = self.path_inside("/run/docker.sock")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(network.CONNECT_TIMEOUT_S)
                connection.connect(str(path))
                connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
                response = http.client.HTTPResponse(connection)
                response.begin()
                return response.status == http.client.OK
        except (OSError, LabError, http.client.HTTPException):
            return False

    # --- the tenant's view

    @property
    def _known_hosts(self) -> Path:
        return self.own_folder / "known_hosts"

    def ssh_argv(self, *words: str, user: str = USER) -> list[str]:
        """The ssh command that logs in to this node from inside the lab, with nothing of the user's own settings."""
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "5",
            "IdentitiesOnly": "yes",
            "LogLevel": "ERROR",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self._known_hosts),
        }
        flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        ssh = ["ssh", "-F", "/dev/null", "-i", str(self.folder.key), *flags, f"{user}@{self.names.address}", *words]
        return [*network.enter(self.lab.control_netns), *ssh]

    def ssh(
        self, command: str, *, stdin: str | None = None, check: bool = True, timeout_s: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell line on the node as `ubuntu`, over SSH."""
        done = subprocess.run(
            self.ssh_argv(command),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if check and done.returncode != 0:
            raise LabError(
                f"{self.name}: `{command}` ended with {done.returncode}", why=tail(done.stderr or done.stdout)
            )
        return done

    def entry(self) -> operator_files.NodeEntry:
        return operator_files.NodeEntry(self.name, str(self.names.address), USER, self.folder.key, self.host_key())

    def inventory(self) -> dict[str, object]:
        """What is on the node's disks and what runs: two of these show what a deployment left behind."""
        found: dict[str, object] = json.loads(self.ssh("sudo python3 -", stdin=INVENTORY.read_text()).stdout)
        return found

    def fault(self, kind: str, *arguments: str) -> None:
        """Do to the node what `scripts/lab fault` does; returns when it is done, boot included."""
        faults.inflict(self, kind, list(arguments))
