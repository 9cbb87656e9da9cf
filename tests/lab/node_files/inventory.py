"""Say as JSON what is on this machine, so that two moments can be compared. Runs on a node, as root, from stdin.

What a machine changes by being on (logs, random seeds, the system's own stamps) is left out by exact path; whatever a
deployment could leave behind is in.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not on a disk, or another view of one.
SKIPPED_TREES = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp")
# Written by the running system itself.
VOLATILE = (
    "/etc/.updated",
    "/var/.updated",
    "/var/lib/lastlog",
    "/var/lib/sudo",
    "/var/lib/systemd/random-seed",
    "/var/lib/systemd/timers",
    "/var/lib/systemd/timesync",
    "/var/lib/wtmpdb",
    "/var/log/btmp",
    "/var/log/journal",
    "/var/log/lastlog",
    "/var/log/wtmp",
    "/var/log/wtmp.db",
)
# Docker's and containerd's own books: what is in them is asked for by name instead.
DOCKER_BOOKS = ("/var/lib/containerd", "/var/lib/docker")
# Views of the kernel's, of a login, or dockerd's handle on the host network once a container has used it.
UNCOUNTED_MOUNTS = ("/proc", "/sys", "/dev", "/run/credentials", "/run/docker/netns", "/run/user")
FIRST_EPHEMERAL_PORT = 32768


def main() -> None:
    found = {
        "docker": docker(),
        "files": dict(files("/")),
        "groups": {row[0]: row[3] for row in (line.split(":") for line in ask("getent", "group"))},
        "listening": listening(),
        "mounts": mounts(),
        "packages": ask("dpkg-query", "-W", "-f", "${Package} ${Version}\n"),
        "processes": processes(),
        "units": units(),
        "users": [line.split(":")[0] for line in ask("getent", "passwd")],
    }
    print(json.dumps(found, sort_keys=True))


def ask(*argv: str) -> list[str]:
    """The sorted lines a program prints; none when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    return sorted(done.stdout.splitlines()) if done.returncode == 0 else []


def files(top: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Every path below `top` that is on a disk: mode, owner, and size and digest or target."""
    skipped = {*SKIPPED_TREES, *VOLATILE, *DOCKER_BOOKS}
    for folder, names, leaves in os.walk(top):
        base = Path(folder)
        names[:] = [name for name in names if str(base / name) not in skipped]
        for path in (base / name for name in [*names, *leaves]):
            if str(path) not in skipped:
                try:
                    yield str(path), describe(path)
                except FileNotFoundError:
                    continue


def describe(path: Path) -> dict[str, object]:
    found = path.lstat()
    entry: dict[str, object] = {"mode": stat.filemode(found.st_mode), "owner": f"{found.st_uid}:{found.st_gid}"}
    if stat.S_ISLNK(found.st_mode):
        entry["target"] = str(path.readlink())
    elif stat.S_ISREG(found.st_mode):
        entry["size"] = found.st_size
        with path.open("rb") as source:
            entry["sha256"] = hashlib.file_digest(source, "sha256").hexdigest()
    return entry


def units() -> dict[str, str]:
    """Unit -> enabled, disabled, masked, transient ...: a transient unit is one that somebody made at run time."""
    rows = [line.split() for line in ask("systemctl", "list-unit-files", "--no-legend", "--plain", "--no-pager")]
    return {row[0]: row[1] for row in rows if row[1] != "generated" and not row[0].startswith(("session-", "user-"))}


def mounts() -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted(point for point in points if not point.startswith(UNCOUNTED_MOUNTS))


def listening() -> list[str]:
    """Address and program of each listener; a port that the kernel chose is no fact worth comparing."""
    found = set()
    for line in ask("ss", "-Hltnp"):
        local, process = line.split()[3], line.split('"')
        address, _, port = local.rpartition(":")
        shown = "(any)" if int(port) >= FIRST_EPHEMERAL_PORT else port
        found.add(f"{address}:{shown} {process[1] if len(process) > 1 else '?'}")
    return sorted(found)


def docker() -> dict[str, list[str]] | None:
    """What dockerd lists; None when there is none that answers."""
    root = ask("docker", "info", "--format", "{{.DockerRootDir}}")
    if not root:
        return None
    return {
        "containers": ask("docker", "container", "ls", "--all", "--format", "{{.Names}} {{.Image}}"),
        "images": ask("docker", "image", "ls", "--all", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}"),
        "networks": ask("docker", "network", "ls", "--format", "{{.Name}} {{.Driver}}"),
        "root": root,
        "volumes": ask("docker", "volume", "ls", "--format", "{{.Name}}"),
    }


def processes() -> list[str]:
    """Names of the programs that run, without those of the login that is asking."""
    names = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_text(errors="replace").split("\0")[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if command:
                names.add(Path(command.split(" ")[0].rstrip(":")).name)
    return sorted(names - {"sudo", "sshd-session", "sshd-auth", "(sd-pam)"})


if __name__ == "__main__":
    main()
