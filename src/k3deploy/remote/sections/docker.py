"""What the Docker daemon says about itself and its containers. Reads only."""

import os
from typing import Any

from k3deploy.remote.docker_lock import wait_for_change
from k3deploy.remote.dockerd import CONTAINERD_STORE, SOCKET_PATH, Dockerd, DockerRefused, NoDaemon
from k3deploy.remote.reading import Reader, Unreadable, names, tool_output, which

# Folders of CDI specs (Container Device Interface), Docker's default `cdi-spec-dirs`.
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
GPU_HOOKS = ("nvidia-container-runtime-hook", "nvidia-cdi-hook")


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: optionally socket.

    `state`: answers, silent (there is a socket or a program, but no answer) or absent; `why` says more.
    """
    wait_for_change()
    daemon = Dockerd(args.get("socket", SOCKET_PATH))
    found: dict[str, Any] = {
        "state": "answers",
        "why": "",
        "gpu_hooks": [name for name in GPU_HOOKS if which(name) is not None],
        "cdi_specs": cdi_specs(CDI_FOLDERS),
        "info": None,
        "containers": [],
        "containerd_root": None,
    }
    try:
        found["info"] = _info(daemon)
        if found["info"]["driver_type"] == CONTAINERD_STORE:
            found["containerd_root"] = Reader().read("containerd_root", containerd_root)
        found["containers"] = [_container(row) for row in daemon.get("/containers/json", all="1")]
    except NoDaemon as reason:
        is_there = daemon.has_socket or which("dockerd") is not None
        found.update(state="silent" if is_there else "absent", why=str(reason))
    except DockerRefused as refused:
        found.update(state="silent", why=f"the daemon answered with HTTP status {refused.status}: {refused.message}")
    return found


def _info(daemon: Dockerd) -> dict[str, Any]:
    info = daemon.get("/info")
    return {
        "version": info["ServerVersion"],
        "root": info["DockerRootDir"],
        "root_device": device_of(info["DockerRootDir"]),
        "driver": info["Driver"],
        # CONTAINERD_STORE when images are kept by containerd, outside of the daemon's own root.
        "driver_type": dict(row for row in info.get("DriverStatus") or [] if len(row) == 2).get("driver-type"),
        "runtimes": sorted(info.get("Runtimes") or {}),
        "security": [str(option) for option in info.get("SecurityOptions") or []],
        "keeps_containers_on_restart": bool(info.get("LiveRestoreEnabled")),
        "architecture": info["Architecture"],
        "image_count": info.get("Images", 0),
        "cdi_devices": [row["ID"] for row in info.get("DiscoveredDevices") or [] if "ID" in row],
    }


def _container(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["Id"],
        "name": (row.get("Names") or [row["Id"][:12]])[0].lstrip("/"),
        "image": row["Image"],
        "state": row["State"],
    }


def cdi_specs(folders: tuple[str, ...]) -> list[str]:
    """CDI specs that name NVIDIA in their file name, as nvidia-ctk writes them."""
    return [os.path.join(folder, name) for folder in folders for name in names(folder) if "nvidia" in name]


def containerd_root() -> dict[str, Any]:
    """Where containerd keeps its own images, from its effective configuration. Raises Unreadable."""
    for row in tool_output(["containerd", "config", "dump"]).splitlines():
        if row.startswith("["):
            break  # only the keys before the first table are containerd's own
        name, separator, value = row.partition("=")
        if separator and name.strip() == "root":
            path = value.strip().strip("\"'")
            return {"path": path, "device": device_of(path)}
    raise Unreadable("containerd's configuration names no root")


def device_of(path: str) -> str | None:
    """The file system a path is on, as major:minor; None when there is no such path."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return None
    return f"{os.major(device)}:{os.minor(device)}"
