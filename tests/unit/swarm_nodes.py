"""Several nodes on addresses of the loopback: each with a cache, a share and a fetch, as real programs."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.hub import Hub
from tests.unit.remote_program import Ran, finish, start, until
from tests.unit.weights_world import Cache, World, empty_cache

TOKEN = "only-this-run-knows"
RUN = "r-swarm"
Process = subprocess.Popen[bytes]


@dataclass
class Node:
    """One node of a swarm. `share` and `fetch` are its programs, when they were started."""

    name: str
    address: str
    cache: Cache
    share: Process | None = None
    fetch: Process | None = None

    def kill(self) -> None:
        """Everything of this node ends at once, as with a power cut."""
        for process in (self.share, self.fetch):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


@dataclass
class Swarm:
    """`ports`: where shares listen, on the address of each node."""

    hub: Hub
    folder: Path
    nodes: list[Node]
    ports: list[int]
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def peers_file(self) -> Path:
        return self.folder / "peers.json"

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def fetch_args(self, node: Node, **more: Any) -> dict[str, Any]:
        args = {"strategy": "swarm", "in_flight": 2, **self.more, **more}
        swarm = {
            "run": RUN,
            "node": node.name,
            "peers_file": str(self.peers_file),
            "ports": self.ports,
            "share_folder": str(node.cache.folder / "share"),
        }
        return node.cache.fetch_args(self.hub, swarm=swarm, secrets={"swarm_token": TOKEN}, **args)

    def share_args(self, node: Node, **more: Any) -> dict[str, Any]:
        return {
            "run": RUN,
            "node": node.name,
            "host": node.address,
            "ports": self.ports,
            "peers_file": str(self.peers_file),
            "hf_home": str(node.cache.hf_home),
            "manifest": node.cache.manifest,
            "fetch_folder": str(node.cache.folder / "scratch"),
            "linger_s": 60.0,
            "slots": None,
            "secrets": {"swarm_token": TOKEN},
            **more,
        }

    def start_share(self, node: Node, **more: Any) -> None:
        node.share = start("share", self.share_args(node, **more))

    def start_fetch(self, node: Node, **more: Any) -> None:
        node.fetch = start("fetch", self.fetch_args(node, **more))

    def start(self, nodes: Sequence[Node] | None = None, **more: Any) -> None:
        """Share and fetch of these nodes, or of all."""
        for node in self.nodes if nodes is None else nodes:
            self.start_share(node)
        for node in self.nodes if nodes is None else nodes:
            self.start_fetch(node, **more)

    def finish(self, nodes: Sequence[Node] | None = None) -> dict[str, Ran]:
        """How the fetches ended, by node."""
        ended = {}
        for node in self.nodes if nodes is None else nodes:
            assert node.fetch is not None
            ended[node.name] = finish(node.fetch)
        return ended

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
            for process in (node.share, node.fetch):
                if process is not None:
                    with contextlib.suppress(ValueError):
                        process.communicate()


@contextlib.contextmanager
def swarm(world: World, hub: Hub, folder: Path, count: int, **more: Any) -> Iterator[Swarm]:
    """Nodes gpu-01 ... with empty caches. `more`: arguments of all fetches."""
    # Another test may run at the same time: addresses are drawn from the process number.
    subnet = f"127.{1 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
    nodes = [
        Node(f"gpu-{number:02d}", f"{subnet}.{10 + number}", empty_cache(world, folder / f"gpu-{number:02d}"))
        for number in range(1, count + 1)
    ]
    made = Swarm(hub, folder, nodes, [20400, 20401, 20402, 20403], more)
    made.peers_file.write_text(json.dumps({"run": RUN, "nodes": {node.name: node.address for node in nodes}}))
    try:
        yield made
    finally:
        made.close()


def finished(cache: Cache) -> set[str]:
    """Paths of the shards that are whole in a cache."""
    return {path for path in cache.world.shards if cache.link(path).exists()}


def wait_for_shards(node: Node, count: int) -> None:
    until(lambda: len(finished(node.cache)) >= count, f"{node.name} has {count} shards")
