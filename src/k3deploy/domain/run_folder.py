"""Where a run keeps its own things on a node: everything of ours is below `<mount>/k3deploy/<run id>`."""

from dataclasses import dataclass

from k3deploy.domain.names import RunId


@dataclass(frozen=True)
class RunFolder:
    """Paths on a node. `mount` is the profile's storage.mount."""

    mount: str
    run: RunId

    @property
    def base(self) -> str:
        """The folder that all runs on this node share."""
        return f"{self.mount.rstrip('/')}/k3deploy"

    @property
    def path(self) -> str:
        return f"{self.base}/{self.run}"

    @property
    def jobs(self) -> str:
        return f"{self.path}/jobs"

    @property
    def swarm(self) -> str:
        """Who the other nodes are, and the token they trust each other by."""
        return f"{self.path}/swarm"

    @property
    def peers(self) -> str:
        return f"{self.swarm}/peers.json"

    @property
    def launch(self) -> str:
        """What we mean to run here: written before `docker run`, so that a container can be known to be ours."""
        return f"{self.path}/launch.json"

    @property
    def container(self) -> str:
        """The id of the container that came of it."""
        return f"{self.path}/container.json"

    @property
    def ready(self) -> str:
        """On the head: what the log said while the engine came up, and of which containers."""
        return f"{self.path}/ready.json"

    @property
    def chat(self) -> str:
        """On the head: the first real answer, as it came."""
        return f"{self.path}/chat.json"

    @property
    def api_key(self) -> str:
        """On the head, when the API is public: read by root and, inside the container, by the engine."""
        return f"{self.path}/engine.yaml"

    def client(self, lock: str) -> str:
        """The Hub client from one lock, for `sys.path`."""
        return f"{self.path}/client-{lock}"
