"""Ask the registry, through this node's Docker daemon and its mirrors, which image a name stands for. Pulls nothing."""

from typing import Any
from urllib.parse import quote

from k3deploy.remote.dockerd import SOCKET_PATH, Dockerd, DockerRefused, NoDaemon
from k3deploy.remote.protocol import Refusal, Say

_NOT_FOUND = 404
_DENIED = (401, 403)
_TIMEOUT_S = 60.0


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: reference, optionally socket. Returns {"digest", "platforms": ["linux/amd64", ...]}.

    Seen with Docker 26.1: the daemon asks its mirrors first, as for a pull. Raises Refusal when the registry has no
    such image, wants a login, or can't be reached.
    """
    reference = args["reference"]
    daemon = Dockerd(args.get("socket") or SOCKET_PATH)
    try:
        found = daemon.get(f"/distribution/{quote(reference, safe='/:@')}/json", timeout_s=_TIMEOUT_S)
    except DockerRefused as refused:
        raise _refusal(reference, refused) from refused
    except NoDaemon as reason:
        raise Refusal(
            "the Docker daemon could not ask the registry",
            why=str(reason),
            fix="see `sudo journalctl -u docker` on the node, then run the same command again",
            image=reference,
        ) from reason
    platforms = [f"{row['os']}/{row['architecture']}" for row in found.get("Platforms") or [] if row.get("os")]
    # An index also lists attestations, as platform unknown/unknown.
    known = sorted({platform for platform in platforms if "unknown" not in platform})
    return {"digest": found["Descriptor"]["digest"], "platforms": known}


def _refusal(reference: str, refused: DockerRefused) -> Refusal:
    if refused.status == _NOT_FOUND:
        return Refusal(
            f"the registry has no image {reference}",
            why=refused.message,
            fix="correct `engine.image` in the profile: the repository or the tag does not exist (any longer)",
            image=reference,
        )
    if refused.status in _DENIED:
        return Refusal(
            f"the registry does not let this node read {reference}",
            why=refused.message,
            fix="use an image that can be pulled without a login, or a mirror of it inside your network",
            image=reference,
        )
    return Refusal(
        f"the registry of {reference} cannot be asked",
        why=refused.message,
        fix="check that the node reaches the registry (route, DNS, proxy of the Docker daemon), or name a mirror in "
        "`registry-mirrors` of daemon.json",
        image=reference,
    )
