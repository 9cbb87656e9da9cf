"""A lab with shaped links and a large checkpoint, on which fetches are timed: our strategies and `hf download`."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from k3deploy.domain import events as ev
from tests.lab import checkpoint, node_client
from tests.lab.hub_control import HubControl
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.operator import Operator

PROFILE = "bench.yaml"
UP = ("up", "--profile", PROFILE, "--until")
HF_HOME = "/ephemeral/hf"
HF_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Fetched:
    """One fetch by all nodes. `seconds`: from the first step of the fetch to the last node's last proof; `at` is when
    that began. `shares`: of each file, which address got how many bytes from the Hub."""

    seconds: float
    at: float
    hub_bytes: int
    shares: Mapping[str, Mapping[str, int]]
    load: float


class Cluster:
    """`expected` is what a node must hold in the end."""

    def __init__(self, lab: Lab, variant: str, base: str) -> None:
        self.lab = lab
        self.operator = Operator(lab)
        self.hub = HubControl(lab)
        self.expected = checkpoint.expected(variant)
        self._base = base
        self.hub_mbit = [0] * len(lab.nodes)
        self.lan_mbit = 0

    @classmethod
    @contextmanager
    def up(cls, name: str, *, profile: str, nodes: int, variant: str) -> "Iterator[Cluster]":
        """A lab of its own, with the client on every node and nothing else."""
        lab = Lab.up(name, profile=profile, nodes=nodes, variant=variant)
        try:
            cluster = cls(lab, variant, profile)
            cluster.use("hub")
            cluster._k3deploy("client")
            yield cluster
        finally:
            lab.down()

    def shape(self, hub_mbit: Sequence[int], lan_mbit: int) -> None:
        """Give each node its link to the Hub, and all of them the same link to each other."""
        self.hub_mbit, self.lan_mbit = list(hub_mbit), lan_mbit
        for node, mbit in zip(self.lab.nodes, hub_mbit, strict=True):
            node.fault("rate", str(mbit), "eth0")
            node.fault("rate", str(lan_mbit), "ens6")

    def use(self, strategy: str) -> None:
        """Write the profile of the next fetch."""
        (self.lab.folder.work / PROFILE).write_text(
            f"extends: {self._base}\n"
            "name: bench\n"
            "description: a large checkpoint\n"
            f"model: {{revision: {self.expected.commit}, shards: {self.expected.shards},"
            f" shard_bytes: {self.expected.shard_bytes}}}\n"
            f"weights: {{strategy: {strategy}}}\n"
            "provenance: {source: a benchmark, verified_by: nobody}\n"
        )

    def fetch(self, strategy: str) -> Fetched:
        """From bare caches to proved files on all nodes. Raises SystemExit when it fails."""
        self.begin(strategy)
        self._k3deploy("weights-verify")
        return self.newest()

    def newest(self, nodes: Sequence[str] | None = None) -> Fetched:
        """The newest fetch of all nodes, or of those that were not killed."""
        names = set(nodes or [node.name for node in self.lab.nodes])
        began, ended = spans(self.operator.events(), names)
        return self._fetched(began, ended)

    def begin(self, strategy: str) -> None:
        """Make ready for a fetch that the caller starts."""
        self.wipe()
        self.hub.reset()
        self.use(strategy)

    def hf_download(self) -> Fetched:
        """`hf download` on each node, all at once; it proves nothing, so its time ends with its last byte."""
        self.begin("hub")
        words = f"download {checkpoint.REPO} --revision {self.expected.commit} --quiet"
        self._hf_on_all("version")  # its bytecode is there, as an installed one's is
        began = time.time()
        self._hf_on_all(words)
        return self._fetched(began, time.time())

    def wipe(self) -> None:
        """Take the weights away; the page cache of the Hub's own files stays warm."""
        for node in self.lab.nodes:
            if node.is_running():
                node.ssh("sudo sh -c 'rm -rf /ephemeral/hf/hub; fstrim /ephemeral; sync'")

    def _fetched(self, began: float, ended: float) -> Fetched:
        seen = self.hub.stats()
        return Fetched(ended - began, began, int(seen["bytes"]), seen["shares"], os.getloadavg()[0])

    def _k3deploy(self, until: str) -> None:
        said = self.operator.k3deploy(*UP, until)
        if said.code != 0:
            raise SystemExit(f"k3deploy {' '.join(UP)} {until}: {said}")

    def _hf_on_all(self, words: str) -> None:
        endpoint = self.lab.env["HF_ENDPOINT"]

        def one(node: Node) -> None:
            node_client.hf(node, words, endpoint=endpoint, hf_home=HF_HOME, timeout_s=HF_TIMEOUT_S)

        with ThreadPoolExecutor(len(self.lab.nodes)) as pool:
            list(pool.map(one, self.lab.nodes))


def spans(events: Sequence[ev.Event], nodes: set[str]) -> tuple[float, float]:
    """When the newest flow's fetch began, and when the last of these nodes had proved it; epoch seconds."""
    starts = [index for index, event in enumerate(events) if isinstance(event, ev.RunStarted)]
    flow = events[starts[-1] :]
    began = min(e.at for e in flow if isinstance(e, ev.StepStarted) and e.phase.startswith("weights-fetch"))
    proved = {e.target: e.at for e in flow if isinstance(e, ev.Verified) and e.phase == "weights-verify"}
    missing = nodes - set(proved)
    assert not missing, f"never proved on {', '.join(sorted(missing))}"
    return began, max(proved[name] for name in nodes)
