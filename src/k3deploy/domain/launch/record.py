"""What we noted before `docker run`, and whether a container is what came of it: the only way to call one ours."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from k3deploy.domain.launch.base import Launch
from k3deploy.domain.names import RunId

SCHEMA: Final = 1


@dataclass(frozen=True)
class LaunchRecord:
    """launch.json on a node. It holds no secret: a launch has none in its argv or environment."""

    run: str
    replica: str
    node: str
    node_rank: int
    container: str
    image: str
    cmd: tuple[str, ...]
    env: Mapping[str, str]
    argv: tuple[str, ...]

    @staticmethod
    def of(launch: Launch, run: RunId) -> "LaunchRecord":
        return LaunchRecord(
            run=str(run),
            replica=str(launch.replica),
            node=str(launch.node),
            node_rank=int(launch.node_rank),
            container=launch.container,
            image=launch.image,
            cmd=launch.engine_argv,
            env={variable.name: variable.value for variable in launch.environment},
            argv=launch.argv,
        )

    @staticmethod
    def from_dict(body: Mapping[str, Any] | None) -> "LaunchRecord | None":
        """None for no record, or one of another schema: then a container can't be shown to be ours."""
        if body is None or body.get("schema") != SCHEMA:
            return None
        return LaunchRecord(
            run=body["run"],
            replica=body["replica"],
            node=body["node"],
            node_rank=body["node_rank"],
            container=body["container"],
            image=body["image"],
            cmd=tuple(body["cmd"]),
            env=dict(body["env"]),
            argv=tuple(body["argv"]),
        )

    def as_dict(self) -> dict[str, Any]:
        body = asdict(self)
        return {"schema": SCHEMA, **body, "cmd": list(self.cmd), "argv": list(self.argv), "digest": self.digest}

    @property
    def digest(self) -> str:
        """Of all that decides what runs."""
        text = json.dumps([list(self.argv), dict(self.env)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class ContainerSeen:
    """A container as `sections/container.py` saw it. Times are epoch seconds of the node's clock."""

    id: str
    name: str
    image: str
    cmd: tuple[str, ...]
    env: Mapping[str, str]
    status: str
    exit_code: int
    oom_killed: bool
    error: str
    started: str
    started_at: float
    finished_at: float

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def identity(self) -> str:
        """Another one after every start, so that a result is known to be of this life of the container."""
        return f"{self.id[:12]} {self.started}"

    @property
    def how_it_is(self) -> str:
        """For people, after a name: `running`, `exited with code 137 (killed for lack of memory)`."""
        if self.status != "exited":
            return self.status if not self.error else f"{self.status}: {self.error}"
        killed = " (killed for lack of memory)" if self.oom_killed else ""
        return f"exited with code {self.exit_code}{killed}"

    @property
    def does(self) -> str:
        """The same as the verb of a sentence: `exited with code 137`, `is created`."""
        return self.how_it_is if self.status == "exited" else f"is {self.how_it_is}"

    def came_of(self, record: LaunchRecord) -> bool:
        """Whether it has the image, the command and the environment of that launch. An image may add variables."""
        return (
            self.name == record.container
            and self.image == record.image
            and self.cmd == record.cmd
            and all(self.env.get(name) == value for name, value in record.env.items())
        )

    @staticmethod
    def parse(body: Mapping[str, Any] | None) -> "ContainerSeen | None":
        if body is None:
            return None
        return ContainerSeen(
            id=body["id"],
            name=body["name"],
            image=body["image"],
            cmd=tuple(body["cmd"]),
            env=dict(entry.split("=", 1) for entry in body["env"] if "=" in entry),
            status=body["status"],
            exit_code=body["exit_code"],
            oom_killed=body["oom_killed"],
            error=body["error"],
            started=body["started"],
            started_at=body["started_at"],
            finished_at=body["finished_at"],
        )


@dataclass(frozen=True)
class PortHolder:
    """A process that listens on a port of ours. pid None: it could not be found out."""

    port: int
    pid: int | None
    program: str | None
    container: str | None

    @property
    def text(self) -> str:
        if self.pid is None:
            return "a process that cannot be seen from here"
        where = f" in container {self.container[:12]}" if self.container else ""
        return f"pid {self.pid} ({self.program}){where}"


@dataclass(frozen=True)
class NodeSeen:
    """One node's answer of `sections/container.py`, typed."""

    daemon: str
    why: str
    container: ContainerSeen | None
    noted: LaunchRecord | None
    recorded_id: str | None
    other_runs: tuple[str, ...]
    holders: tuple[PortHolder, ...]

    @property
    def is_ours(self) -> bool:
        """Whether the container under our name is provably this run's: it has the id that Docker gave us, or equals
        what we noted before starting it (the id may be missing when we were cut off in between)."""
        if self.container is None or self.noted is None:
            return False
        return self.container.id == self.recorded_id or self.container.came_of(self.noted)

    @staticmethod
    def parse(body: Mapping[str, Any]) -> "NodeSeen":
        """From the section's answer. Raises KeyError or TypeError for another shape: a fault of ours."""
        recorded = body["recorded"]
        return NodeSeen(
            daemon=body["daemon"],
            why=body["why"],
            container=ContainerSeen.parse(body["container"]),
            noted=LaunchRecord.from_dict(body["launch"]),
            recorded_id=recorded.get("id") if recorded else None,
            other_runs=tuple(body["other_claims"]),
            holders=tuple(PortHolder(**row) for row in body["listeners"]),
        )
