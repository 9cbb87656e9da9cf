"""A launch: argv, environment and container options of one process of one replica, each value with its source."""

from dataclasses import dataclass, field

from k3deploy.domain.names import NodeName, NodeRank, ReplicaName


@dataclass(frozen=True)
class Flag:
    """One option. `value` None is a switch without a value; `rest` holds further values of one that takes several.

    `source` says where the value comes from: "profile:<path>", "topology:<fact>", "node:<name>" or "k3deploy".
    """

    name: str
    value: str | None
    source: str
    rest: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name,) if self.value is None else (self.name, self.value, *self.rest)


@dataclass(frozen=True)
class Variable:
    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Address:
    """What the facts probe found for a node: inputs of the renderer, never looked up inside it.

    `hcas` are names of active RDMA ports' devices (mlx5_0 ...); empty means plain Ethernet.
    """

    node: NodeName
    private_address: str
    private_interface: str
    hcas: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """Everything needed to start one rank by hand. `secret_files` must exist on the node, mode 0600, before that."""

    replica: ReplicaName
    node: NodeName
    node_rank: NodeRank
    node_count: int
    engine: str
    container: str
    image: str
    docker_options: tuple[Flag, ...]
    environment: tuple[Variable, ...]
    program: tuple[str, ...]  # ("sglang", "serve")
    flags: tuple[Flag, ...]
    secret_files: tuple[str, ...] = field(default=())

    @property
    def argv(self) -> tuple[str, ...]:
        """The complete `docker run` command."""
        words: list[str] = ["docker", "run"]
        for option in self.docker_options:
            words += option.words
        for variable in self.environment:
            words += ["--env", f"{variable.name}={variable.value}"]
        words += [self.image, *self.engine_argv]
        return tuple(words)

    @property
    def engine_argv(self) -> tuple[str, ...]:
        words: list[str] = [*self.program]
        for flag in self.flags:
            words += flag.words
        return tuple(words)
