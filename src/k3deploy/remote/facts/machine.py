"""The machine itself: operating system, architecture, Python, who we are, which tools there are, memory and limits."""

import importlib.util
import os
import platform
import resource
import sys
from typing import Any

from k3deploy.remote.facts.memory import memory_available_bytes, memory_bytes
from k3deploy.remote.reading import Reader, Unreadable, line, text, which

# What huggingface_hub and our own programs import, beyond what python3-minimal of Debian and Ubuntu has.
NEEDED_MODULES = (
    "_bz2",
    "_ctypes",
    "_lzma",
    "_ssl",
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "http.client",
    "json",
    "mimetypes",
    "queue",
    "secrets",
    "shutil",
    "uuid",
    "zlib",
)
TOOLS = ("docker", "dockerd", "systemctl", "systemd-run", "rsync", "nvidia-smi", "ip", "blkid")


def machine(read: Reader, root: str = "/") -> dict[str, Any]:
    """`root` is where /etc, /proc and /run are looked for; anything but "/" is for tests."""
    return {
        "os": read.read("os", lambda: _os_release(root)),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": {"version": platform.python_version(), "missing_modules": missing_modules(NEEDED_MODULES)},
        "hostname": platform.node(),
        "machine_id": read.read("machine_id", lambda: _identity(root, "etc/machine-id")),
        "boot_id": read.read("boot_id", lambda: _identity(root, "proc/sys/kernel/random/boot_id")),
        "login": _login(),
        "is_root": os.geteuid() == 0,
        "pid_1": read.read("pid_1", lambda: line(os.path.join(root, "proc/1/comm"))),
        "has_systemd": os.path.isdir(os.path.join(root, "run/systemd/system")),
        "is_container": any(os.path.exists(os.path.join(root, mark)) for mark in (".dockerenv", "run/.containerenv")),
        "memory_bytes": read.read("memory_bytes", lambda: memory_bytes(root)),
        "memory_available_bytes": read.read("memory_available_bytes", lambda: memory_available_bytes(root)),
        "limits": {
            "memlock_bytes": _limit(resource.RLIMIT_MEMLOCK),
            "nofile": _limit(resource.RLIMIT_NOFILE),
        },
        "tools": {name: _place(name) for name in TOOLS},
    }


def missing_modules(wanted: tuple[str, ...]) -> list[str]:
    """Modules this Python can't find. Looked for, not imported: that would cost more than all the other facts."""
    return [name for name in wanted if not _has_module(name)]


def _has_module(name: str) -> bool:
    if name in sys.builtin_module_names:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _os_release(root: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for row in text(os.path.join(root, "etc/os-release")).splitlines():
        name, separator, value = row.partition("=")
        if separator:
            values[name] = value.strip().strip("\"'")
    return {"id": values["ID"], "version": values.get("VERSION_ID", ""), "title": values.get("PRETTY_NAME", "")}


def _identity(root: str, path: str) -> str:
    found = line(os.path.join(root, path))
    if not found or found == "uninitialized":
        raise Unreadable(f"/{path} holds no identity yet: {found!r}")
    return found


def _login() -> dict[str, Any]:
    """Who logged in: sudo says so; without sudo it is us. The account's name may be missing from the password file."""
    import pwd

    uid = int(os.environ.get("SUDO_UID", os.geteuid()))
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        return {"name": str(uid), "uid": uid, "gid": int(os.environ.get("SUDO_GID", os.getegid())), "home": None}
    return {"name": account.pw_name, "uid": uid, "gid": account.pw_gid, "home": account.pw_dir}


def _limit(which_limit: int) -> int | None:
    """The hard limit; None is unlimited."""
    hard = resource.getrlimit(which_limit)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _place(tool: str) -> str | None:
    """Where a tool really is: a snap's docker shows itself by its resolved path."""
    found = which(tool, f"{os.defpath}:/snap/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin")
    return None if found is None else os.path.realpath(found)
