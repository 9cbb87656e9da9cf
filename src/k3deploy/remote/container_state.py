"""One container as the daemon knows it, in the few fields that tell what it runs and how it is."""

from typing import Any

from k3deploy.remote.container_log import parse_time
from k3deploy.remote.dockerd import Dockerd, DockerRefused, NoDaemon


def container_state(daemon: Dockerd, name: str) -> dict[str, Any]:
    """{"daemon": "running" | "absent" | "silent", "why", "container": {...} | None}. Never raises for a missing one."""
    if not daemon.has_socket:
        return {"daemon": "absent", "why": f"{daemon.socket_path} does not exist", "container": None}
    try:
        body = daemon.get(f"/containers/{name}/json")
    except DockerRefused as refused:
        if refused.status == 404:
            return {"daemon": "running", "why": "", "container": None}
        return {"daemon": "silent", "why": refused.message, "container": None}
    except NoDaemon as error:
        return {"daemon": "silent", "why": str(error), "container": None}
    return {"daemon": "running", "why": "", "container": _fields(body)}


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    config, state = body["Config"], body["State"]
    return {
        "id": body["Id"],
        "name": body["Name"].lstrip("/"),
        "image": config["Image"],
        "image_id": body["Image"],
        "cmd": config.get("Cmd") or [],
        "env": config.get("Env") or [],
        "status": state["Status"],
        "exit_code": state["ExitCode"],
        "oom_killed": bool(state.get("OOMKilled")),
        "error": state.get("Error") or "",
        "created_at": parse_time(body["Created"]),
        "started": state["StartedAt"],  # text: compared for equality, with all its nanoseconds
        "started_at": parse_time(state["StartedAt"]),
        "finished_at": parse_time(state["FinishedAt"]),
    }
