"""Where big files would really land: mounts, the disks below them, space, and what is already there."""

import os
import re
from typing import Any

from k3deploy.remote.reading import Reader, Unreadable, line, names, text, tool, tool_output

# Block devices that are no disk of their own.
NOT_A_DISK = re.compile(r"(loop|ram|zram|sr|fd|dm-|md|nbd)\d*")


def disks(read: Reader, args: dict[str, Any], root: str = "/") -> dict[str, Any]:
    """`args`: mount (the profile's storage mount), paths (folder -> the mount point it belongs to), blobs
    (folders where weights may be already).

    `root` is where /proc, /sys and /dev are looked for; anything but "/" is for tests.
    """
    table = read.read("mounts", lambda: mounts(text(os.path.join(root, "proc/self/mountinfo"))))
    storage = read.read("storage", lambda: _storage(read, args["mount"], table or [], root))
    answer: dict[str, Any] = {
        "mounts": [_sized(each) for each in _on_devices(table or [])],
        "storage": storage,
        "paths": {path: _placed(path, mount) for path, mount in args.get("paths", {}).items()},
        "weights_present_bytes": read.read("weights_present_bytes", lambda: sum(map(_allocated, args["blobs"]))),
        "disks": None,
    }
    # Only to be able to name a disk that was forgotten: probing disks for signatures is not free.
    if storage is None or not storage["is_mount_point"] or storage["is_root"]:
        answer["disks"] = read.read("disks", lambda: block_devices(table or [], root))
    return answer


def mounts(mountinfo: str) -> list[dict[str, Any]]:
    """Every mount of /proc/self/mountinfo (proc(5)), in order: of two at one place the later one hides the earlier."""
    found = []
    for row in mountinfo.splitlines():
        before, _, after = row.partition(" - ")
        left, right = before.split(), after.split()
        found.append(
            {
                "path": _unescaped(left[4]),
                "device": left[2],  # major:minor
                "source": _unescaped(right[1]),
                "fs_type": right[0],
                "is_read_only": "ro" in left[5].split(","),
            }
        )
    return found


def _unescaped(word: str) -> str:
    """mountinfo writes blanks as octal: \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), word)


def _storage(read: Reader, path: str, table: list[dict[str, Any]], root: str) -> dict[str, Any]:
    real = os.path.realpath(path)
    if not os.path.exists(real):
        raise Unreadable(f"{path} does not exist")
    owner = _mount_of(real, table)
    if owner is None:
        raise Unreadable(f"no mount holds {path}")
    top = next((each for each in reversed(table) if each["path"] == "/"), None)
    below_root = _disks_below(top["device"], root) if top else set()
    below = _disks_below(owner["device"], root)
    space = os.statvfs(real)
    number = os.stat(real).st_dev
    return {
        "path": path,
        "is_mount_point": owner["path"] == real,
        "mounted_at": owner["path"],
        "source": owner["source"],
        # As stat(2) has it: on btrfs another one than in the mount table.
        "device": f"{os.major(number)}:{os.minor(number)}",
        "fs_type": owner["fs_type"],
        "is_read_only": owner["is_read_only"],
        "is_root": top is not None and (owner["device"] == top["device"] or owner["path"] == "/"),
        "shares_disk_with_root": bool(below & below_root),
        "uuid": read.read("storage.uuid", lambda: file_system_uuid(owner["source"], root)),
        "size_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
        "free_inodes": space.f_favail if space.f_files else None,  # btrfs counts none
    }


def _mount_of(real: str, table: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The mount that holds a path: the deepest one, and of two at one place the later."""
    best = None
    for each in table:
        inside = real == each["path"] or real.startswith(each["path"].rstrip("/") + "/")
        if inside and (best is None or len(each["path"]) >= len(best["path"])):
            best = each
    return best


def file_system_uuid(source: str, root: str = "/") -> str:
    """The file system's UUID: a disk that was wiped and formatted anew is another file system. Raises Unreadable."""
    device = os.path.realpath(source)
    by_uuid = os.path.join(root, "dev/disk/by-uuid")
    for uuid in names(by_uuid):
        if os.path.realpath(os.path.join(by_uuid, uuid)) == device:
            return uuid
    # Without udev there are no such links. -p reads the disk: blkid's own cache remembers wiped file systems.
    found = tool_output(["blkid", "-p", "-o", "value", "-s", "UUID", source]).strip()
    if not found:
        raise Unreadable(f"{source} has no UUID")
    return found


def block_devices(table: list[dict[str, Any]], root: str = "/") -> list[dict[str, Any]]:
    """Whole disks, with where they or their parts are mounted and whether anything at all is on them."""
    found = []
    folder = os.path.join(root, "sys/block")
    for name in names(folder):
        if NOT_A_DISK.fullmatch(name):
            continue
        place = os.path.join(folder, name)
        size_bytes = int(line(os.path.join(place, "size"))) * 512
        if size_bytes == 0:
            continue
        parts = [part for part in names(place) if os.path.exists(os.path.join(place, part, "partition"))]
        numbers = {line(os.path.join(place, part, "dev")) for part in ["", *parts]}
        mounted_at = sorted({each["path"] for each in table if each["device"] in numbers})
        holders = names(os.path.join(place, "holders"))
        found.append(
            {
                "name": name,
                "size_bytes": size_bytes,
                "model": _line_or(os.path.join(place, "device/model"), ""),
                "mounted_at": mounted_at,
                "parts": parts,
                "holders": holders,
                "signature": None if parts or holders or mounted_at else _signature(f"/dev/{name}"),
            }
        )
    return found


def _signature(device: str) -> str | None:
    """What blkid recognises on a whole disk (ext4, linux_raid_member, ...); "" for nothing, None when it can't tell."""
    try:
        done = tool(["blkid", "-p", "-o", "value", "-s", "TYPE", device])
    except Unreadable:
        return None
    if done.exit_code == 0:
        return done.stdout.strip()
    # blkid ends with 2 for a blank disk and for one it can't open alike; only the second has something to say.
    return None if done.stderr.strip() else ""


def _disks_below(device: str, root: str) -> set[str]:
    """Whole disks beneath a block device: partitions belong to their disk, md and dm devices have slaves."""
    place = os.path.realpath(os.path.join(root, "sys/dev/block", device))
    if not os.path.isdir(place):
        return set()
    if os.path.exists(os.path.join(place, "partition")):
        place = os.path.dirname(place)
    slaves = names(os.path.join(place, "slaves"))
    if not slaves:
        return {os.path.basename(place)}
    below: set[str] = set()
    for slave in slaves:
        below |= _disks_below(line(os.path.join(place, "slaves", slave, "dev")), root)
    return below


def _on_devices(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One mount for each disk-backed file system, the one with the shortest path (the others are binds of it)."""
    best: dict[str, dict[str, Any]] = {}
    for each in table:
        if not each["source"].startswith("/dev/"):
            continue  # asking a network file system for its size may hang for ever
        known = best.get(each["device"])
        if known is None or len(each["path"]) < len(known["path"]):
            best[each["device"]] = each
    return list(best.values())


def _sized(mount: dict[str, Any]) -> dict[str, Any]:
    try:
        space = os.statvfs(mount["path"])
    except OSError:
        return {**mount, "size_bytes": None, "free_bytes": None}
    return {
        **mount,
        "size_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
    }


def _placed(path: str, mount: str) -> dict[str, Any]:
    """Whether a folder is, or would be made, on the file system that is mounted at `mount`, and the space there."""
    nearest = os.path.realpath(path)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    space = os.statvfs(nearest)
    try:
        is_on_mount = os.stat(nearest).st_dev == os.stat(mount).st_dev
    except OSError:
        is_on_mount = False
    return {
        "exists": os.path.exists(path),
        "is_on_mount": is_on_mount,
        "is_mounted": os.path.ismount(mount),
        "free_bytes": space.f_bavail * space.f_frsize,
    }


def _allocated(folder: str) -> int:
    """Bytes that the files of one folder take on disk: a half-written shard counts for what is written."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise Unreadable(f"{folder}: {error.strerror}") from error
    return total


def _line_or(path: str, otherwise: str) -> str:
    try:
        return line(path)
    except Unreadable:
        return otherwise
