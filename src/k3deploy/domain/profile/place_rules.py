"""Rules about where things go: pools, storage, network, and what the hardware says about itself."""

import ipaddress
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from k3deploy.domain.faults import Fault, Level, shown
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.profile.rule import Rule, pools

# Linux hands these out to any outgoing connection (net.ipv4.ip_local_port_range).
_EPHEMERAL_PORTS = range(32768, 61000)


def pool_names(profile: Profile) -> Iterator[Fault]:
    seen: set[str] = set()
    for path, pool in pools(profile):
        if pool.name in seen:
            yield Fault(
                "two pools have the same name", "rename one of them", path=(*path, "name"), found=shown(pool.name)
            )
        seen.add(pool.name)


def roles(profile: Profile) -> Iterator[Fault]:
    for path, pool in pools(profile):
        if pool.replicas.role != "serve":
            yield Fault(
                f"replicas of the role {pool.replicas.role} cannot be started yet",
                "use role: serve",
                path=(*path, "replicas", "role"),
                found=pool.replicas.role,
                wanted="serve",
                why="prefill and decode answer nobody without a router, and this version starts none",
            )


def folders_on_the_mount(profile: Profile) -> Iterator[Fault]:
    mount = PurePosixPath(profile.storage.mount)
    if mount == PurePosixPath("/"):
        yield Fault(
            "the root disk cannot take the weights",
            "name the mount point of the large disk",
            path=("storage", "mount"),
            found="/",
            wanted="a mount point of its own, such as /ephemeral",
        )
        return
    storage = profile.storage
    for key, text, place in (
        ("docker_root", storage.docker_root, storage.mount),
        ("hf_home", storage.hf_home, profile.weights_mount),
    ):
        folder = PurePosixPath(text)
        if PurePosixPath(place) not in folder.parents or ".." in folder.parts:
            yield Fault(
                f"`{key}` is not below the mount",
                f"put it below {place}",
                path=("storage", key),
                found=shown(text),
                wanted=f"a folder below {place}",
                why="free space is looked for on the mount, and the root disk is too small",
            )


def folders_apart(profile: Profile) -> Iterator[Fault]:
    docker, weights = PurePosixPath(profile.storage.docker_root), PurePosixPath(profile.storage.hf_home)
    if docker == weights or docker in weights.parents or weights in docker.parents:
        yield Fault(
            "docker_root and hf_home lie in each other",
            "give each a folder of its own",
            path=("storage", "hf_home"),
            found=shown(profile.storage.hf_home),
            wanted=f"a folder outside {docker}",
        )


def draft_apart(profile: Profile) -> Iterator[Fault]:
    draft = profile.model.draft
    if draft is not None and draft.repo == profile.model.repo:
        yield Fault(
            "the draft model is the model itself",
            "name the draft's own repository, or remove `draft`",
            path=("model", "draft", "repo"),
            found=draft.repo,
            wanted=f"another repository than {profile.model.repo}",
        )


def weights_origin(profile: Profile) -> Iterator[Fault]:
    weights = profile.weights
    if weights.strategy == "mirror" and weights.mirror is None:
        yield Fault(
            "strategy `mirror` without a mirror",
            "set weights.mirror to s3://bucket/prefix or to the address of a Hub-compatible server",
            path=("weights", "strategy"),
            found="mirror",
            wanted="weights.mirror as well",
        )
    if weights.mirror is not None and (reason := _no_mirror(weights.mirror)):
        yield Fault(
            "weights.mirror is not the address of a mirror",
            "write s3://bucket/prefix, or http(s)://HOST of a Hub-compatible server",
            path=("weights", "mirror"),
            found=shown(_without_secrets(weights.mirror)),
            why=reason,
        )
    if (weights.strategy == "shared") != (weights.volume is not None):
        yield Fault(
            "strategy `shared` and weights.volume go together",
            "set weights.volume to where the volume is mounted on every node"
            if weights.volume is None
            else "set weights.strategy to shared, or remove weights.volume",
            path=("weights", "volume"),
            found=shown(weights.volume),
            wanted="a mount point" if weights.volume is None else "none",
            why="the weights go to the volume instead of to each node's own disk",
        )
    if weights.volume is not None and PurePosixPath(weights.volume) in (
        PurePosixPath("/"),
        PurePosixPath(profile.storage.mount),
    ):
        yield Fault(
            "weights.volume is a node's own disk",
            "name the mount point of the volume that all nodes share",
            path=("weights", "volume"),
            found=shown(weights.volume),
            wanted="neither / nor storage.mount",
        )


def _no_mirror(text: str) -> str:
    """Why this is no address of a mirror; empty when it is one."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        return str(error)
    if parts.username or parts.password:
        return "it carries a login, which would be seen in the store and on the nodes"
    if parts.scheme not in ("s3", "http", "https") or not parts.hostname:
        return "neither s3:// nor http(s):// with a host"
    if parts.query or parts.fragment or text != text.strip():
        return "it has more than a host and a path"
    return ""


def _without_secrets(text: str) -> str:
    """Scheme, host and path: a login or a signature may be in the rest."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return text.partition("://")[0] + "://..."
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}" if parts.scheme else parts.path


def private_subnet(profile: Profile) -> Iterator[Fault]:
    try:
        ipaddress.ip_network(profile.network.private_subnet)
    except ValueError:
        yield Fault(
            "`private_subnet` is no subnet",
            "write it like 10.0.0.0/24, with zeros behind the prefix",
            path=("network", "private_subnet"),
            found=shown(profile.network.private_subnet),
            wanted="address/prefix",
        )


def ports_apart(profile: Profile) -> Iterator[Fault]:
    network = profile.network
    if network.api_port == network.rendezvous_port:
        yield Fault(
            "API and rendezvous cannot share a port",
            "change one of them",
            path=("network", "rendezvous_port"),
            found=str(network.rendezvous_port),
            wanted=f"another than api_port {network.api_port}",
        )
    shared = range(network.weights_port, network.weights_ports(is_draft=True).stop)
    for key, port in (("api_port", network.api_port), ("rendezvous_port", network.rendezvous_port)):
        if port in shared:
            yield Fault(
                f"`{key}` lies among the ports on which nodes share weights",
                "change weights_port",
                path=("network", "weights_port"),
                found=f"{shared.start}-{shared.stop - 1}",
                wanted=f"eight ports without {port}",
            )


def ports_outside_ephemeral(profile: Profile) -> Iterator[Fault]:
    network = profile.network
    for key, port in (
        ("api_port", network.api_port),
        ("rendezvous_port", network.rendezvous_port),
        ("weights_port", network.weights_port),
    ):
        if port in _EPHEMERAL_PORTS:
            yield Fault(
                f"`{key}` lies where the kernel picks ports for outgoing connections",
                "take one below 32768",
                path=("network", key),
                found=str(port),
                wanted="outside 32768-60999",
                why="any connection of the node may hold it at the wrong moment",
            )


def grace_is_arm(profile: Profile) -> Iterator[Fault]:
    if profile.hardware.gpu.model in ("gb200", "gb300") and profile.hardware.cpu_architecture != "aarch64":
        yield Fault(
            f"{profile.hardware.gpu.model} nodes have Grace CPUs, which are aarch64",
            "set cpu_architecture: aarch64, unless these are stand-ins",
            path=("hardware", "cpu_architecture"),
            found=profile.hardware.cpu_architecture,
            wanted="aarch64",
        )


def release_command(profile: Profile) -> Iterator[Fault]:
    if profile.release is not None and not profile.release.argv:
        yield Fault(
            "the release command is empty",
            "write the program and its arguments as a list, or remove `release`",
            path=("release", "argv"),
        )


PLACE_RULES = (
    Rule("pool-names", Level.ERROR, pool_names),
    Rule("roles", Level.ERROR, roles),
    Rule("folders-on-the-mount", Level.ERROR, folders_on_the_mount),
    Rule("folders-apart", Level.ERROR, folders_apart),
    Rule("draft-apart", Level.ERROR, draft_apart),
    Rule("weights-origin", Level.ERROR, weights_origin),
    Rule("private-subnet", Level.ERROR, private_subnet),
    Rule("ports-apart", Level.ERROR, ports_apart),
    Rule("ports-outside-ephemeral", Level.WARNING, ports_outside_ephemeral),
    Rule("grace-is-arm", Level.WARNING, grace_is_arm),
    Rule("release-command", Level.ERROR, release_command),
)
