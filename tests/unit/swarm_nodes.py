"""Several nodes on addresses of the loopback: each with a cache, a share and a fetch, as real programs."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k3deploy.remote.hub_cache import Found, Repository, wanted_files
from k3deploy.remote.job_folder import JobFolder
from k3deploy.remote.stamps import Stamps
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
    _alive: int | None = None

    def kill(self) -> None:
        """Everything of this node ends at once, as with a power cut."""
        self.end_share()
        self.end_fetch()

    def end_share(self) -> None:
        _kill(self.share)

    def end_fetch(self) -> None:
        _kill(self.fetch)
        self.hold(is_running=False)

    def hold(self, *, is_running: bool) -> None:
        """The lock by which a share tells whether the fetch beside it runs: a detached job holds it for life."""
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None
        if is_running:
            (self.cache.folder / "scratch").mkdir(exist_ok=True)
            self._alive = JobFolder(str(self.cache.folder / "scratch")).hold()
            assert self._alive is not None

    def fill(self, paths: Sequence[str] | None = None) -> None:
        """Give it these files, or all, as an earlier run would have left them: whole, linked, hashed and stamped."""
        cache, repository = self.cache, self.repository
        wanted = {file.path: file for file in wanted_files(cache.manifest)}
        stamps = Stamps(repository)
        cache.blobs.mkdir(parents=True, exist_ok=True)
        cache.snapshot.mkdir(parents=True, exist_ok=True)
        for path in wanted if paths is None else paths:
            shutil.copyfile(cache.world.source / path, cache.blob(path))
            cache.link(path).symlink_to(os.path.relpath(cache.blob(path), cache.snapshot))
        for path in wanted if paths is None else paths:
            found = repository.look_at(wanted[path])
            assert isinstance(found, Found)
            stamps.put(wanted[path], found, wanted[path].digest)
        stamps.save()

    def fill_wrongly(self, path: str) -> None:
        """Give it a file whose bytes are wrong although a stamp says that they are right, as a liar would."""
        wanted = next(file for file in wanted_files(self.cache.manifest) if file.path == path)
        blob = self.cache.blob(path)
        blob.write_bytes(bytes(wanted.size_bytes))
        self.cache.link(path).symlink_to(os.path.relpath(blob, self.cache.snapshot))
        found, stamps = self.repository.look_at(wanted), Stamps(self.repository)
        assert isinstance(found, Found)
        stamps.put(wanted, found, wanted.digest)
        stamps.save()

    @property
    def repository(self) -> Repository:
        return Repository(str(self.cache.hf_home), self.cache.manifest["repo"], self.cache.manifest["commit"])


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
        }
        return node.cache.fetch_args(self.hub, **{"swarm": swarm, "secrets": {"swarm_token": TOKEN}, **args})

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
        """Returns when it listens."""
        node.share = start("share", self.share_args(node, **more))
        until(lambda: any(_listens(node.address, port) for port in self.ports), f"the share of {node.name} listens")

    def start_fetch(self, node: Node, **more: Any) -> None:
        node.hold(is_running=True)
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
            node.hold(is_running=False)
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


def _kill(process: Process | None) -> None:
    if process is not None and process.poll() is None:
        process.kill()
        process.communicate()


def _listens(address: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0


def finished(cache: Cache) -> set[str]:
    """Paths of the shards that are whole in a cache."""
    return {path for path in cache.world.shards if cache.link(path).exists()}


def wait_for_shards(node: Node, count: int) -> None:
    until(lambda: len(finished(node.cache)) >= count, f"{node.name} has {count} shards")
