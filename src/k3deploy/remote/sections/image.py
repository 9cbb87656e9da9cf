"""One local image, by the reference it must be present under. Reads only."""

from typing import Any

from k3deploy.remote.dockerd import SOCKET_PATH, Dockerd, DockerRefused, NoDaemon, image_path

NOT_FOUND = 404


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: reference, optionally socket. `image` is null when it isn't there; `why` says when nobody could tell."""
    daemon = Dockerd(args.get("socket", SOCKET_PATH))
    try:
        return {"image": image(daemon, args["reference"]), "why": ""}
    except (NoDaemon, DockerRefused) as reason:
        return {"image": None, "why": str(reason)}


def image(daemon: Dockerd, reference: str) -> dict[str, Any] | None:
    """A local image, or None. `digests`: every repository@digest that it was pulled as."""
    try:
        found = daemon.get(image_path(reference))
    except DockerRefused as refused:
        if refused.status == NOT_FOUND:
            return None
        raise
    config = found.get("Config") or {}
    return {
        "id": found["Id"],
        "digests": found.get("RepoDigests") or [],
        "architecture": found["Architecture"],
        "variant": found.get("Variant") or "",
        "os": found["Os"],
        "size_bytes": found["Size"],
        "requires": [row for row in config.get("Env") or [] if row.startswith("NVIDIA_REQUIRE_")],
    }
