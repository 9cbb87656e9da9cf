"""Docker as a pair of systemd units: what they are, stopping both, starting both, and the daemon's last words.

docker.socket starts the daemon again at the first client that comes by, so the two always go together.
"""

import os
import time
from typing import Any

from k3deploy.remote.dockerd import Dockerd, DockerRefused, NoDaemon
from k3deploy.remote.reading import Unreadable, text, tool, tool_output

SOCKET_UNIT = "docker.socket"
SERVICE_UNIT = "docker.service"
STOP_TIMEOUT_S = 120.0
START_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0
_POLL_S = 0.2
_PROPERTIES = "Id,LoadState,ActiveState,MainPID,FragmentPath,DropInPaths"


class UnitFailed(Exception):
    """systemd could not do it; the text is for people."""


def docker_units() -> dict[str, dict[str, str]]:
    """Properties of both units by name, those that this machine does not have left out. Raises Unreadable."""
    output = tool_output(["systemctl", "show", SOCKET_UNIT, SERVICE_UNIT, f"--property={_PROPERTIES}"])
    found: dict[str, dict[str, str]] = {}
    for block in output.split("\n\n"):
        rows = dict(row.partition("=")[::2] for row in block.splitlines() if "=" in row)
        if rows.get("LoadState") == "loaded":
            found[rows["Id"]] = rows
    return found


def daemon_argv(found: dict[str, dict[str, str]], root: str = "/") -> list[str]:
    """The running daemon's own arguments, after every variable and drop-in was applied. Raises Unreadable.

    `found`: what `docker_units` returned.
    """
    pid = int(found.get(SERVICE_UNIT, {}).get("MainPID", "0"))
    if pid == 0:
        raise Unreadable(f"{SERVICE_UNIT} is not running")
    return [word for word in text(os.path.join(root, f"proc/{pid}/cmdline")).split("\0") if word]


def flag_value(argv: list[str], names: tuple[str, ...]) -> str | None:
    """The value of `--name VALUE` or `--name=VALUE`."""
    for position, word in enumerate(argv):
        for name in names:
            if word == name and position + 1 < len(argv):
                return argv[position + 1]
            if word.startswith(name + "="):
                return word[len(name) + 1 :]
    return None


def unit_files(rows: dict[str, str]) -> list[str]:
    """The unit's own file and its drop-ins."""
    return [path for path in [rows.get("FragmentPath", ""), *rows.get("DropInPaths", "").split()] if path]


class DockerService:
    """The daemon as something that can be stopped and started."""

    def __init__(self, daemon: Dockerd) -> None:
        self.daemon = daemon

    def stop(self) -> list[str]:
        """Stop both units; returns what was active, for `start`. Raises UnitFailed when either is still there then."""
        found = docker_units()
        names = [name for name in (SOCKET_UNIT, SERVICE_UNIT) if name in found]
        active = [name for name in names if found[name]["ActiveState"] == "active"]
        done = tool(["systemctl", "stop", *names], STOP_TIMEOUT_S)
        still = [name for name, rows in docker_units().items() if rows["ActiveState"] not in ("inactive", "failed")]
        if done.exit_code != 0 or still:
            raise UnitFailed(f"systemctl stop {' '.join(names)} ended with {done.exit_code}: {done.stderr.strip()}")
        return active

    def start(self, active: list[str]) -> dict[str, Any]:
        """Start what was active and the daemon itself, and wait until it answers. Returns its /info.

        Raises UnitFailed with the daemon's last words.
        """
        names = list(dict.fromkeys([*active, SERVICE_UNIT]))
        # Several restarts in a row would otherwise meet systemd's start limit.
        tool(["systemctl", "reset-failed", *names])
        done = tool(["systemctl", "start", *names], START_TIMEOUT_S)
        if done.exit_code != 0:
            raise UnitFailed(last_words() or done.stderr.strip())
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                info: dict[str, Any] = self.daemon.get("/info")
            except (NoDaemon, DockerRefused) as reason:
                if time.monotonic() > deadline:
                    raise UnitFailed(f"no answer within {ANSWER_TIMEOUT_S:g} s: {reason}") from reason
                time.sleep(_POLL_S)
            else:
                return info


def last_words(lines: int = 8) -> str:
    """What the daemon wrote last, in the journal."""
    try:
        return tool(
            ["journalctl", "--unit", SERVICE_UNIT, f"--lines={lines}", "--no-pager", "--output=cat"]
        ).stdout.strip()
    except Unreadable:
        return ""
