"""SGLang's command line and environment for one rank: who starts it, with which sizes, addresses and options.

The order is that of the published four-node H100 launch, so that a diff against it shows only real differences.
"""

from collections.abc import Iterator, Mapping

from k3deploy.domain.launch import flags
from k3deploy.domain.launch.base import Address, Flag, Variable
from k3deploy.domain.names import NodeName
from k3deploy.domain.profile.models import FlagValue, Pool, Profile
from k3deploy.domain.topology import Rank, Replica
from k3deploy.domain.weights import cache_folder

PROGRAM = ("sglang", "serve")
CONTAINER_HF_HOME = "/root/.cache/huggingface"
CONTAINER_KEY_FILE = "/etc/k3deploy/engine.yaml"  # SGLang reads `--config` only from names that end in .yaml or .yml

_FIRST = ("trust-remote-code",)


def engine_flags(
    profile: Profile, replica: Replica, rank: Rank, addresses: Mapping[NodeName, Address], *, has_key_file: bool
) -> tuple[Flag, ...]:
    """All options after `sglang serve`, each with its source."""
    pool = profile.pool(replica.pool)
    own = list(_profile_flags(profile, pool, _pool_path(profile, replica)))
    return (
        *(flag for flag in own if flag.name.removeprefix("--") in _FIRST),
        *_model_flags(profile),
        *_size_flags(pool, _pool_path(profile, replica)),
        *_group_flags(profile, replica, rank, addresses),
        *(flag for flag in own if flag.name.removeprefix("--") not in _FIRST),
        *_http_flags(profile, replica, rank, addresses, has_key_file=has_key_file),
    )


def environment(
    profile: Profile, replica: Replica, rank: Rank, addresses: Mapping[NodeName, Address]
) -> tuple[Variable, ...]:
    """Variables of the engine's container. No token: the weights are there, and the engine starts offline."""
    pool = profile.pool(replica.pool)
    pool_path = _pool_path(profile, replica)
    own = [
        Variable(name, value, f"profile:{pool_path if name in pool.env else 'engine'}.env.{name}")
        for name, value in {**profile.engine.env, **pool.env}.items()
    ]
    return (Variable("HF_HUB_OFFLINE", "1", "k3deploy"), *own, *_network_variables(replica, rank, addresses))


def _profile_flags(profile: Profile, pool: Pool, pool_path: str) -> Iterator[Flag]:
    values: dict[str, FlagValue] = {**profile.engine.flags, **pool.flags}
    for name, value in values.items():
        found = flags.flag(name, value, f"profile:{pool_path if name in pool.flags else 'engine'}.flags.{name}")
        if found is not None:
            yield found


def _model_flags(profile: Profile) -> Iterator[Flag]:
    model = profile.model
    if profile.engine.launch_by == "name":
        yield Flag("--model-path", model.repo, "profile:model.repo")
        return
    path = f"{CONTAINER_HF_HOME}/hub/{cache_folder(model.repo)}/snapshots/{model.revision}"
    yield Flag("--model-path", path, "profile:model.revision")
    source = "profile:model.repo" if model.served_name is None else "profile:model.served_name"
    yield Flag("--served-model-name", model.served_name or model.repo, source)


def _size_flags(pool: Pool, pool_path: str) -> Iterator[Flag]:
    sizes = pool.replicas.parallel
    source = f"profile:{pool_path}.replicas.parallel"
    yield Flag("--tp-size", str(sizes.tensor), f"{source}.tensor")
    for name, size, field in (
        ("--pp-size", sizes.pipeline, "pipeline"),
        ("--ep-size", sizes.expert, "expert"),
        ("--attn-dp-size", sizes.attention_data, "attention_data"),
        ("--dcp-size", sizes.decode_context, "decode_context"),
    ):
        if size > 1:  # the engine's own default is 1
            yield Flag(name, str(size), f"{source}.{field}")


def _group_flags(
    profile: Profile, replica: Replica, rank: Rank, addresses: Mapping[NodeName, Address]
) -> Iterator[Flag]:
    if len(replica.ranks) == 1:
        return
    head = _host_in_url(addresses[replica.head.node].private_address)
    nodes_each = f"profile:{_pool_path(profile, replica)}.replicas.nodes_each"
    yield Flag("--nnodes", str(len(replica.ranks)), nodes_each)
    yield Flag("--node-rank", str(rank.node_rank), "topology:order of the nodes")
    yield Flag("--dist-init-addr", f"{head}:{profile.network.rendezvous_port}", f"node:{replica.head.node}")


def _http_flags(
    profile: Profile, replica: Replica, rank: Rank, addresses: Mapping[NodeName, Address], *, has_key_file: bool
) -> Iterator[Flag]:
    is_public = profile.network.api == "public" and rank == replica.head
    if is_public:
        yield Flag("--host", "0.0.0.0", "profile:network.api")  # noqa: S104 - asked for, and kept by a key
    else:
        yield Flag("--host", addresses[rank.node].private_address, f"node:{rank.node}")
    yield Flag("--port", str(profile.network.api_port), "profile:network.api_port")
    if has_key_file:
        yield Flag("--config", CONTAINER_KEY_FILE, "k3deploy")


def _network_variables(replica: Replica, rank: Rank, addresses: Mapping[NodeName, Address]) -> Iterator[Variable]:
    if len(replica.ranks) == 1:
        return
    here = addresses[rank.node]
    source = f"node:{rank.node}"
    yield Variable("SGLANG_HOST_IP", here.private_address, source)
    yield Variable("NCCL_SOCKET_IFNAME", here.private_interface, source)
    yield Variable("GLOO_SOCKET_IFNAME", here.private_interface, source)
    if uses_rdma(replica, addresses):
        # "=" asks NCCL for exactly these names: without it mlx5_1 also means mlx5_10.
        yield Variable("NCCL_IB_HCA", "=" + ",".join(here.hcas), source)
    else:
        lacking = next(node for node in replica.nodes if not addresses[node].hcas)
        yield Variable("NCCL_IB_DISABLE", "1", f"node:{lacking} has no active RDMA port")
    if ":" in here.private_address:
        yield Variable("NCCL_SOCKET_FAMILY", "AF_INET6", source)


def uses_rdma(replica: Replica, addresses: Mapping[NodeName, Address]) -> bool:
    """Only when every node of a replica of several has an active RDMA port: one without it would wait for ever."""
    return len(replica.ranks) > 1 and all(addresses[node].hcas for node in replica.nodes)


def _host_in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _pool_path(profile: Profile, replica: Replica) -> str:
    return f"pools[{profile.pools.index(profile.pool(replica.pool))}]"
