"""Four nodes, a shared volume and a bucket, on which weights are brought in one way after another."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tests.lab import assets, checkpoint, node_client
from tests.lab.deadline import wait_for
from tests.lab.hub_control import HubControl
from tests.lab.hub_files import Repositories
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.operator import Operator, Said

VARIANT = "mini"
HF_HOME = "/ephemeral/hf"
_BLOBS = f"hub/models--{checkpoint.REPO.replace('/', '--')}/blobs"
_LONGEST_S = 120.0
_COUNT = (
    "import os, sys, huggingface_hub as h;"
    "print(len(os.listdir(h.snapshot_download(sys.argv[1], revision=sys.argv[2], local_files_only=True))))"
)


@dataclass(frozen=True)
class Way:
    """An operator with a profile and a store of its own, so a run of its own, on nodes that others use too."""

    name: str
    operator: Operator

    def up(self, until: str = "weights-verify") -> Said:
        words = ("up", "--profile", f"{self.name}.yaml", "--until", until, "--output", "json")
        return self.operator.k3deploy(*words)

    @contextmanager
    def going_up(self) -> Iterator[Future[Said]]:
        """The same in the background; what it said is waited for at the end of the block."""
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(self.up)


class WeightsSite:
    """The lab, and what there is to know of its checkpoint: `shards` are the files that have a sha256, by path."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.hub = HubControl(lab)
        self.expected = checkpoint.expected(VARIANT)
        files = Repositories(assets.hub_root(VARIANT)).files(checkpoint.REPO)
        self.shards = {path: file for path, file in files.items() if file.sha256}
        self.sizes = {path: file.size for path, file in self.shards.items()}
        self.shard_bytes = sum(self.sizes.values())

    def way(self, name: str, weights: str, more: str = "") -> Way:
        """From bare caches and a Hub that counts from nothing. The same name is the same run."""
        (self.lab.folder.work / f"{name}.yaml").write_text(
            f"extends: lab-h100x32\nname: {name}\ndescription: weights in the lab\nweights: {{{weights}}}\n{more}"
            "provenance: {source: a test, verified_by: nobody}\n"
        )
        self.hub.fault({})
        self.shape(0)
        for node in self.lab.nodes:
            node.ssh(f"sudo rm -rf {HF_HOME}/hub")
        self.hub.reset()
        return Way(name, Operator(self.lab, {"K3DEPLOY_STORE": str(self.lab.folder.work / f"store-{name}")}))

    def shape(self, hub_mbit: int) -> None:
        """Every node's link to the Hub; 0 lifts the limit."""
        for node in self.lab.nodes:
            node.fault("rate", str(hub_mbit), "eth0")

    def from_hub(self, node: Node | None = None) -> dict[str, int]:
        """Bytes of each shard that left the Hub, for all clients or for one node."""
        shares = self.hub.stats()["shares"]
        address = str(node.names.address) if node else ""
        return {
            path: sum(count for client, count in clients.items() if not node or client == address)
            for path, clients in shares.items()
            if path in self.shards
        }

    def held(self, node: Node) -> set[str]:
        """Shards whose blobs are on a running node, by path; seen from the machine's side."""
        folder = node.path_inside(f"{HF_HOME}/{_BLOBS}")
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        return {path for path, file in self.shards.items() if file.sha256 in names}

    def until(self, what: str, probe: Callable[[], bool], going: Future[Said]) -> None:
        """Wait while a command goes on. Raises AssertionError with its words when it ends too soon."""

        def check() -> bool:
            found = probe()
            assert found or not going.done(), going.result()
            return found

        wait_for(what, check, _LONGEST_S)

    def until_half(self, going: Future[Said]) -> None:
        """Wait until half of the checkpoint's shards have left the Hub."""
        self.until("half of it left the Hub", lambda: sum(self.from_hub().values()) > self.shard_bytes / 2, going)

    def assert_whole(self, node: Node, hf_home: str = HF_HOME) -> None:
        """The real client finds every byte right, nothing missing and nothing more, and opens it without a Hub."""
        self.hub.fault({})
        commit = self.expected.commit
        strict = "--fail-on-missing-files --fail-on-extra-files"
        hub, nowhere = self.lab.env["HF_ENDPOINT"], "http://127.0.0.1:1"
        words = f"cache verify {checkpoint.REPO} --revision {commit} {strict}"
        node_client.hf(node, words, endpoint=hub, hf_home=hf_home)
        words = f"{checkpoint.REPO} {commit}"
        found = node_client.python(node, _COUNT, words, endpoint=nowhere, hf_home=hf_home)
        assert int(found) == self.expected.files
