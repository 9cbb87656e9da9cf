"""Disk images of a lab's nodes, in a pool that copies a 3 GiB root disk in no time where the machine allows it.

The pool is an XFS file system in a sparse file: reflink copies share blocks until they are written. Where it can't be
made or mounted, the pool is a plain folder and copies are real (sparse) ones: slower, and otherwise the same.

What a node wrote survives its power cut (which ends processes, not the machine) without a flush to the machine's one
disk, where it would wait for what all other nodes write. So devices pass none on, and keep nothing in memory twice.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.commands import run
from tests.lab.deadline import wait_for
from tests.lab.errors import LabError
from tests.lab.mountinfo import is_mounted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.folders import LabFolder

POOL_GIB = 200  # of address space; it takes what is written
POOL_LOG_MIB = 64
RELEASE_TIMEOUT_S = 30.0
ATTACH_TRIES = 10


def open_pool(folder: LabFolder, base_image: Path) -> Path:
    """Make and mount the pool if need be; returns the base image's copy inside it."""
    folder.pool.mkdir(parents=True, exist_ok=True)
    if not folder.pool_image.exists():
        _format(folder)
    if folder.pool_image.exists() and not is_mounted(folder.pool):
        run("mount", "-o", "discard", attach(folder.pool_image), str(folder.pool))
    base = folder.pool / "base.img"
    if not base.exists():
        draft = folder.pool / ".base.img"
        run("cp", "--sparse=always", str(base_image), str(draft))
        draft.rename(base)
    return base


def _format(folder: LabFolder) -> None:
    draft = folder.pool_image.with_suffix(".draft")
    with draft.open("wb") as handle:
        handle.truncate(POOL_GIB << 30)
    options = ("-q", "-m", "reflink=1", "-l", f"size={POOL_LOG_MIB}m")
    done = run("mkfs.xfs", *options, str(draft), check=False)
    if done.returncode == 0:
        draft.rename(folder.pool_image)
        return
    draft.unlink()
    print(f"lab: no XFS pool ({done.stderr.strip()}): root disks are copied in full", file=sys.stderr)


def fresh_root(folder: LabFolder, node: str) -> Path:
    """A root disk that has never booted.

    The old image is removed first, never written over: something that still has it open keeps the old blocks and
    can't spoil the new ones.
    """
    image = folder.pool / f"{node}-root.img"
    image.unlink(missing_ok=True)
    run("cp", "--reflink=auto", "--sparse=always", str(folder.pool / "base.img"), str(image))
    return image


def blank_nvme(folder: LabFolder, node: str, size_gib: int) -> Path:
    """A local NVMe as it comes from the provider: blank, for the node's boot to format."""
    image = nvme_image(folder, node)
    image.unlink(missing_ok=True)
    with image.open("wb") as handle:
        handle.truncate(size_gib << 30)
    return image


def root_image(folder: LabFolder, node: str) -> Path:
    return folder.pool / f"{node}-root.img"


def nvme_image(folder: LabFolder, node: str) -> Path:
    return folder.pool / f"{node}-nvme.img"


def attach(image: Path) -> str:
    """The loop device of an image, attached if it isn't; others attach at the same time, so a lost race is retried."""
    for _ in range(ATTACH_TRIES):
        found = devices(lambda file: file == image)
        if found:
            return found[0]
        done = run("losetup", "--find", "--show", "--direct-io=on", str(image), check=False)
        if done.returncode == 0:
            device = done.stdout.strip()
            with contextlib.suppress(OSError):  # where the machine does not let us, nodes are slower, no more
                Path("/sys/block", Path(device).name, "queue/write_cache").write_text("write through")
            return device
    raise LabError(
        f"no loop device for {image}", why=done.stderr.strip(), fix="modprobe loop, or end other users of loop devices"
    )


def detach(image: Path) -> None:
    """Let go of an image's device; one still in use goes a moment later, with the node's last mount."""
    for device in devices(lambda file: file == image):
        run("losetup", "--detach", device)
    wait_for(f"{image.name} detached", lambda: not devices(lambda file: file == image), RELEASE_TIMEOUT_S)


def close_pool(folder: LabFolder) -> None:
    """Detach every loop device whose file is in the lab's folder and unmount the pool; fine when there is nothing."""

    def is_released() -> bool:
        """Again and again: a root disk's device goes with its node's mount namespace, a moment after the node's last
        process, and an `up` that was killed may have left a losetup that is only now attaching one."""
        found = devices(lambda file: folder.pool in file.parents)
        for device in found:
            run("losetup", "--detach", device, check=False)
        return not found

    wait_for("loop devices of the lab's disks released", is_released, RELEASE_TIMEOUT_S)
    if is_mounted(folder.pool):
        wait_for(
            "pool unmounted", lambda: run("umount", str(folder.pool), check=False).returncode == 0, RELEASE_TIMEOUT_S
        )
    # Mount namespaces of other labs' nodes hold a copy of every mount that was there when they began; removing the
    # folder under the mount takes it out of all of them.
    if folder.pool.exists():
        shutil.rmtree(folder.pool)
    detach(folder.pool_image)


def devices(chosen: Callable[[Path], bool]) -> list[str]:
    """Loop devices whose file is chosen; that of a removed file is named as losetup does, with " (deleted)"."""
    if shutil.which("losetup") is None:
        return []
    text = run("losetup", "--list", "--json", "--output", "NAME,BACK-FILE").stdout
    table = json.loads(text)["loopdevices"] if text.strip() else []
    return [each["name"] for each in table if each["back-file"] and chosen(Path(each["back-file"]))]
