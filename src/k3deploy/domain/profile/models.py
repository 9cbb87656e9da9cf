"""The profile: what a person writes to say which hardware, which model, which engine, where things go.

Every model is frozen and refuses unknown keys. Numbers carry their unit in the name.
A loaded profile is complete: layers (defaults < extends < profile < command line) are merged before validation.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0)]
AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00]*$")]
# true: the bare option; false: not given; a list: several words; a map: compact JSON.
FlagValue = bool | int | float | str | list[object] | dict[str, object]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Gpu(Section):
    """One GPU type. `names` are what nvidia-smi may print; what counts is the memory that the node reports."""

    model: str  # h100, b300, gb300
    names: tuple[str, ...]
    memory_mib_min: Positive
    architecture: Literal["hopper", "blackwell"]


class Hardware(Section):
    gpu: Gpu
    gpus_per_node: Positive
    nvlink_domain: Literal["node", "rack"] = "node"
    cpu_architecture: Literal["x86_64", "aarch64"] = "x86_64"


class Geometry(Section):
    """The sizes that parallel sizes must divide. Defaults: config.json of moonshotai/Kimi-K3.

    `replicated_bytes` is what every GPU holds on top of its share of the weights, in bytes: 59.63 GiB on each of
    32 x H100 and 195.32 GiB on each of 8 x B300 (both measured) are 15.2 and 14.6 GB more than shard_bytes / GPUs.
    `attention_bytes` (67 GiB) are the attention weights, which every attention group holds once.
    """

    attention_heads: Positive = 96
    hidden_size: Positive = 7168
    vocabulary: Positive = 163_840
    routed_experts: Positive = 896
    replicated_bytes: Positive = 15_000_000_000
    attention_bytes: Positive = 71_900_000_000


Repo = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Draft(Section):
    """The small model that speculative decoding drafts with: fetched and proved with the model, on every node."""

    repo: Repo
    revision: Revision
    shard_bytes: Positive


class Model(Section):
    """`revision` is always a full commit: `main` may move between two nodes' downloads."""

    repo: Repo
    revision: Revision
    shards: Positive
    shard_bytes: Positive
    context_tokens: Positive
    served_name: str | None = None  # only where the engine is launched with a path
    geometry: Geometry = Geometry()
    draft: Draft | None = None

    @property
    def all_bytes(self) -> int:
        """The shards of the model and of its draft, in bytes."""
        return self.shard_bytes + (self.draft.shard_bytes if self.draft else 0)


class Weights(Section):
    """How the weights come to the nodes, and from where.

    `hub`: every node fetches all of it. `swarm`: every byte comes into the cluster once, and the nodes give it to each
    other over the private network. `auto`: a swarm whose nodes also ask the Hub for what they hold twice over, where
    that is sooner: never slower than `hub`. `shared`: storage.hf_home is one volume that all nodes see. `mirror`: as
    `hub`, from `mirror`. With another strategy `mirror` is where the bytes come from instead of the Hub.
    """

    strategy: Literal["auto", "hub", "swarm", "shared", "mirror"] = "auto"
    volume: AbsolutePath | None = None  # for `shared`: where that volume is mounted, on every node
    # s3://bucket/prefix with the files below it, or the address of a server that speaks as the Hub does.
    mirror: str | None = None


class Engine(Section):
    """`versions` is a range like ">=0.5.17,<0.6"; `digest` stays null until the first pull settles it."""

    name: Literal["sglang"] = "sglang"
    versions: str
    image: Annotated[str, Field(pattern=r"^[\w./:-]+$")]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    flags: dict[str, FlagValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    launch_by: Literal["name", "path"] = "name"
    shm_size: str = "32g"


class Parallel(Section):
    """Sizes over one replica. World size is tensor * pipeline; attention data parallelism sits inside tensor."""

    tensor: Positive
    pipeline: Positive = 1
    expert: Positive = 1
    attention_data: Positive = 1
    decode_context: Positive = 1


class Replicas(Section):
    count: Positive = 1
    role: Literal["serve", "prefill", "decode"] = "serve"
    nodes_each: Positive
    parallel: Parallel


class Pool(Section):
    """Named nodes with the same hardware and purpose. It needs replicas.count * replicas.nodes_each nodes."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    replicas: Replicas
    flags: dict[str, FlagValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)


class Storage(Section):
    """Where the big things go. `mount` must be a mount point of its own, never the root disk."""

    mount: AbsolutePath = "/ephemeral"
    docker_root: AbsolutePath = "/ephemeral/docker"
    hf_home: AbsolutePath = "/ephemeral/hf"
    image_bytes: Positive = 40_000_000_000  # unpacked image, with room to pull
    margin_bytes: Positive = 50_000_000_000


class Network(Section):
    """`api: public` binds to all interfaces and then needs a generated key; `private` is the default."""

    private_subnet: str = "10.0.0.0/8"
    api: Literal["private", "public"] = "private"
    api_port: Port = 8000
    rendezvous_port: Port = 20000
    # Nodes give weights to each other on the first free one of four for the model, and of the next four for its draft:
    # another run on the same node may hold some.
    weights_port: Annotated[int, Field(ge=1, le=65528)] = 20400

    def weights_ports(self, *, is_draft: bool) -> range:
        first = self.weights_port + (4 if is_draft else 0)
        return range(first, first + 4)


class Timeouts(Section):
    """Deadlines. Each one names what it limits; sources are in docs/reference/profile.md."""

    connect_s: Seconds = 20
    image_pull_s: Seconds = 3600
    weights_fetch_s: Seconds = 14400
    weights_stall_s: Seconds = 120
    group_s: Seconds = 900  # from container start until every rank joined the process group
    load_s: Seconds = 5400  # loading weights
    warmup_s: Seconds = 1800  # pools, graphs, HTTP, warm-up
    stop_s: Seconds = 60


class Price(Section):
    """Dollars for one GPU for one hour; null when unknown, and then no cost is shown."""

    usd_per_gpu_hour: Annotated[float, Field(ge=0)] | None = None
    note: str = ""


class Expect(Section):
    """What a healthy launch looks like, with who measured it. Deviations are shown, not hidden."""

    gpu_used_mib: Positive | None = None
    weights_gib_per_gpu: Annotated[float, Field(gt=0)] | None = None
    decode_tok_per_s: Annotated[float, Field(gt=0)] = 5.0
    start_s: Seconds | None = None


class Provenance(Section):
    """Where the numbers come from. `verified_by` is said out loud, "nobody" included."""

    source: str
    verified_by: str


class Release(Section):
    """A command run on each node at the very end of teardown, and what its output must contain."""

    argv: tuple[str, ...]
    expect_stdout: str = ""
    timeout_s: Seconds = 60


class Profile(Section):
    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    description: str
    hardware: Hardware
    model: Model
    weights: Weights = Weights()
    engine: Engine
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    storage: Storage = Storage()
    network: Network = Network()
    timeouts: Timeouts = Timeouts()
    price: Price = Price()
    expect: Expect = Expect()
    provenance: Provenance
    release: Release | None = None

    def pool(self, name: str) -> Pool:
        """The pool of that name; there is one, as replicas take theirs from here."""
        return next(pool for pool in self.pools if pool.name == name)

    @property
    def node_count(self) -> int:
        return sum(pool.replicas.count * pool.replicas.nodes_each for pool in self.pools)

    @property
    def weights_mount(self) -> str:
        """The mount point of the disk or volume that takes the weights."""
        return self.weights.volume or self.storage.mount

    @property
    def usd_per_hour(self) -> float | None:
        """What the profile's machines cost for an hour, running or not used."""
        if self.price.usd_per_gpu_hour is None:
            return None
        return self.price.usd_per_gpu_hour * self.hardware.gpus_per_node * self.node_count
