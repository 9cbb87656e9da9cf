"""A profile and its topology as launches: one for each rank, pure, with the source of every value."""

from collections.abc import Mapping

from k3deploy.domain.launch import container, sglang
from k3deploy.domain.launch.base import Address, Launch
from k3deploy.domain.names import NodeName
from k3deploy.domain.profile.models import Engine, Profile
from k3deploy.domain.topology import Rank, Replica, Topology


def render(
    profile: Profile,
    topology: Topology,
    addresses: Mapping[NodeName, Address],
    *,
    image: str,
    key_file: str | None = None,
) -> tuple[Launch, ...]:
    """Launches of all replicas, in order of replica and node rank.

    `image` is what `docker run` is given: see `image_reference`. `key_file` is the path on the head nodes of the file
    made by `engine_key_file`; it is needed exactly when the profile says `api: public`. Raises ValueError when it is
    missing or too many, and KeyError for a node without an address.
    """
    return tuple(
        launch
        for replica in topology.replicas
        for launch in render_replica(profile, replica, addresses, image=image, key_file=key_file)
    )


def render_replica(
    profile: Profile,
    replica: Replica,
    addresses: Mapping[NodeName, Address],
    *,
    image: str,
    key_file: str | None = None,
) -> tuple[Launch, ...]:
    """Launches of one replica; the first is the head, which has to be started first. Raises as `render`."""
    if (profile.network.api == "public") != (key_file is not None):
        raise ValueError("a key file belongs to api: public, and only to it")
    families = {":" in addresses[node].private_address for node in replica.nodes}
    if len(families) > 1:
        raise ValueError(f"replica {replica.name} mixes IPv4 and IPv6 private addresses")
    return tuple(
        _launch(
            profile,
            replica,
            rank,
            addresses,
            image=image,
            own_key_file=key_file if rank == replica.head else None,  # only the head answers requests
        )
        for rank in replica.ranks
    )


def _launch(
    profile: Profile,
    replica: Replica,
    rank: Rank,
    addresses: Mapping[NodeName, Address],
    *,
    image: str,
    own_key_file: str | None,
) -> Launch:
    return Launch(
        replica=replica.name,
        node=rank.node,
        node_rank=rank.node_rank,
        node_count=len(replica.ranks),
        engine=profile.engine.name,
        container=container.CONTAINER_NAME,
        image=image,
        docker_options=container.docker_options(
            profile,
            hf_home_inside=sglang.CONTAINER_HF_HOME,
            key_file=own_key_file,
            key_file_inside=sglang.CONTAINER_KEY_FILE,
            uses_rdma=sglang.uses_rdma(replica, addresses),
        ),
        environment=sglang.environment(profile, replica, rank, addresses),
        program=sglang.PROGRAM,
        flags=sglang.engine_flags(profile, replica, rank, addresses, has_key_file=own_key_file is not None),
        secret_files=() if own_key_file is None else (own_key_file,),
    )


def image_reference(engine: Engine, digest: str | None = None) -> str:
    """`repository@sha256:...` once a digest is settled (given, or in the profile), else the tag."""
    settled = digest or engine.digest
    return engine.image if settled is None else f"{engine.image.rpartition(':')[0]}@{settled}"


def engine_key_file(key: str) -> bytes:
    """Content of the 0600 file that hands the API key to SGLang by `--config` (YAML, read by the engine itself).

    `key` has to be of letters, digits, - and _: then no quoting can go wrong. Raises ValueError otherwise.
    """
    if not key or not all(character.isascii() and (character.isalnum() or character in "-_") for character in key):
        raise ValueError("an API key is made of letters, digits, - and _")
    return f'api-key: "{key}"\n'.encode()
