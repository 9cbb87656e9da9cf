"""The Debian packages that the lab's machine and the lab's nodes are made of."""

from __future__ import annotations

import os
import shutil

from tests.lab import cache, folders
from tests.lab.commands import machine_env, run
from tests.lab.errors import LabError

# What the machine needs: program -> package.
MACHINE_TOOLS = {
    "docker-registry": "docker-registry",
    "ip": "iproute2",
    "losetup": "mount",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sysctl": "procps",
    "systemd-nspawn": "systemd-container",
    "tc": "iproute2",
}

# What a node is: what a provider's "Debian 13 with Docker" image has, and no pip and no venv.
NODE_SUITE = "trixie"
NODE_PACKAGES = (
    "ca-certificates",
    "curl",
    "dbus",
    "docker-cli",
    "docker.io",
    "e2fsprogs",
    "iproute2",
    "iptables",
    "iputils-ping",
    "jq",
    "kmod",
    "less",
    "openssh-server",
    "procps",
    "python3",
    "rsync",
    "sudo",
    "systemd",
    "systemd-sysv",
)


def missing() -> list[str]:
    """Packages of this machine that the lab needs and does not find."""
    path = machine_env()["PATH"]
    return sorted({package for tool, package in MACHINE_TOOLS.items() if shutil.which(tool, path=path) is None})


def ensure() -> None:
    """Install what is missing. RUNLEVEL=1 keeps the packages from starting services of the machine's own."""
    if not missing():
        return
    with cache.locked(folders.cache() / "packages.lock"):
        wanted = missing()
        if wanted:
            _install(wanted)


def _install(wanted: list[str]) -> None:
    if shutil.which("apt-get") is None:
        raise LabError(
            f"the lab needs {', '.join(wanted)}",
            why="there is no apt-get on this machine to install them with",
            fix="install them by hand, or run the lab on Debian 12",
        )
    env = {**os.environ, "RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-q", env=env)
    run("apt-get", "install", "-q", "-y", "--no-install-recommends", *wanted, env=env)
    still = missing()
    if still:
        raise LabError(f"{', '.join(still)}: installed, but still not found")
