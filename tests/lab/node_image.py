"""The disk image every node starts from: a Debian root file system turned into a rented GPU machine.

Two cached steps, since the first takes a package index and a minute and changes rarely, the second neither.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.lab import cache
from tests.lab.commands import run
from tests.lab.packages import NODE_PACKAGES, NODE_SUITE

NODE_FILES = Path(__file__).with_name("node_files")
NVIDIA_SMI = Path(__file__).with_name("nvidia_smi.py")
ROOT_DISK_GIB = 3  # small, as on a rented node whose real space is the NVMe
UBUNTU_UID = 1000

# node_files name -> (path on the node, mode)
INSTALLED = {
    "daemon.json": ("etc/docker/daemon.json", 0o644),
    "ephemeral-nvme.service": ("etc/systemd/system/ephemeral-nvme.service", 0o644),
    "lab-hostkeys.service": ("etc/systemd/system/lab-hostkeys.service", 0o644),
    "lab-runc": ("usr/local/sbin/lab-runc", 0o755),
    "mount-ephemeral": ("usr/local/sbin/mount-ephemeral", 0o755),
    "nvidia-container-runtime-hook": ("usr/bin/nvidia-container-runtime-hook", 0o755),
    "sshd.conf": ("etc/ssh/sshd_config.d/lab.conf", 0o644),
}
ENABLED = {
    "multi-user.target.wants": "lab-hostkeys.service",
    "local-fs.target.wants": "ephemeral-nvme.service",
}
# Units that need a real machine or run at odd times behind a test's back.
MASKED = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "kmod-static-nodes.service",
    "sshd-keygen.service",
    "systemd-firstboot.service",
    "systemd-modules-load.service",
    "systemd-networkd.service",
    "systemd-pstore.service",
    "systemd-timesyncd.service",
    "systemd-udevd.service",
)
DOCKER_UNITS = ("docker.service", "docker.socket", "containerd.service")


def root_tar() -> Path:
    """The bare Debian tree as a tar, cached by its package list. Needs a package index when it isn't there yet."""
    options = (
        "--variant=minbase",
        f"--include={','.join(NODE_PACKAGES)}",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        '--aptopt=APT::Install-Recommends "false"',
    )
    mirror = [os.environ["K3DEPLOY_LAB_MIRROR"]] if os.environ.get("K3DEPLOY_LAB_MIRROR") else []

    def build(draft: Path) -> None:
        run("mmdebstrap", "--quiet", *options, NODE_SUITE, str(draft / "root.tar"), *mirror)

    recipe = cache.recipe_hash(NODE_SUITE, *options)
    return cache.entry("node-root", recipe, build) / "root.tar"


def base_image() -> Path:
    """The ext4 image of a node that never booted: no host key, no machine id, nothing of any lab in it."""
    tar = root_tar()

    def build(draft: Path) -> None:
        root = draft / "root"
        root.mkdir()
        run(
            "tar",
            "--extract",
            "--xattrs",
            "--xattrs-include=*",
            "--numeric-owner",
            f"--file={tar}",
            f"--directory={root}",
        )
        _furnish(root)
        image = draft / "base.img"
        with image.open("wb") as handle:
            handle.truncate(ROOT_DISK_GIB << 30)
        # No journal: what a node writes to its root need not survive the lab's machine.
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-d", str(root), str(image))
        shutil.rmtree(root)

    files = [source.read_bytes() for source, _, _ in _installed()]
    recipe = cache.recipe_hash(tar.parent.name, Path(__file__).read_bytes(), *files)
    return cache.entry("node-image", recipe, build) / "base.img"


def _installed() -> list[tuple[Path, str, int]]:
    """Our own files on a node: source, path on the node, mode."""
    files = [(NODE_FILES / name, target, mode) for name, (target, mode) in INSTALLED.items()]
    if NVIDIA_SMI.exists():
        files.append((NVIDIA_SMI, "usr/bin/nvidia-smi", 0o755))
    return files


def _furnish(root: Path) -> None:
    for source, target, mode in _installed():
        path = root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
        path.chmod(mode)
    units = root / "etc/systemd/system"
    for wants, unit in ENABLED.items():
        (units / wants).mkdir(exist_ok=True)
        (units / wants / unit).symlink_to(f"../{unit}")
    for unit in MASKED:
        mask(units, unit)
    _user(root)
    (root / "ephemeral").mkdir()
    (root / "etc/fstab").write_text("")
    (root / "etc/default/locale").touch()
    (root / "etc/machine-id").write_text("uninitialized\n")
    resolver = root / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    resolver.write_text("")  # no name server: a look-up fails at once
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for marker in ("etc/.updated", "var/.updated"):
        (root / marker).touch()  # spares each first boot the caches that a package upgrade would make stale
    shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)
    for index in (root / "var/cache/apt").glob("*.bin"):
        index.unlink()


def _user(root: Path) -> None:
    """`ubuntu` with passwordless sudo and without the docker group, as on most providers' images."""
    run("chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", "--uid", str(UBUNTU_UID), "ubuntu")
    rule = root / "etc/sudoers.d/ubuntu"
    rule.write_text("ubuntu ALL=(ALL) NOPASSWD:ALL\n")
    rule.chmod(0o440)


def mask(units: Path, unit: str) -> None:
    """What `systemctl mask` does, on a tree that isn't running."""
    path = units / unit
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/null")
