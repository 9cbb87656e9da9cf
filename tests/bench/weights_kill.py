"""What a killed node costs: which bytes crossed the Hub's link twice, and whether they had to."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.bench.weights_cluster import UP, Cluster, Fetched
from tests.lab import assets, checkpoint
from tests.lab.hub_files import Repositories
from tests.lab.node import Node

_LOOK_EVERY_S = 0.2
BLOBS = f"/ephemeral/hf/hub/models--{checkpoint.REPO.replace('/', '--')}/blobs"


@dataclass(frozen=True)
class Killed:
    """`fetched` is what the survivors did. `twice_bytes` came from the Hub more than once; `needless_bytes` of them
    were neither in the dead node's hands nor on it alone."""

    fetched: Fetched
    twice_bytes: int
    needless_bytes: int


def kill_half_way(cluster: Cluster, variant: str, victim: Node) -> Killed:
    """Cut a node's power when half of the checkpoint has left the Hub, and let the others finish."""
    survivors = [node for node in cluster.lab.nodes if node is not victim]
    cluster.begin("swarm")
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(cluster.operator.k3deploy, *UP, "weights-verify")
        while cluster.hub.stats()["bytes"] < cluster.expected.total_bytes / 2 and not said.done():
            time.sleep(_LOOK_EVERY_S)
        victim.fault("kill")
        held = {name for node in survivors for name in _blobs(node)}
        at_kill = cluster.hub.stats()["shares"]
        assert said.result().code != 0, "one node is dead: that cannot be called a success"
    fetched = cluster.newest([node.name for node in survivors])
    victim.fault("start")
    files = Repositories(assets.hub_root(variant)).files(checkpoint.REPO)
    twice = {name: _twice(fetched.shares.get(name, {}), file.size) for name, file in files.items() if file.sha256}
    dead = str(victim.names.address)
    needless = [
        count for name, count in twice.items() if dead not in at_kill.get(name, {}) or files[name].sha256 in held
    ]
    return Killed(fetched, sum(twice.values()), sum(needless))


def _twice(shares: Mapping[str, int], size_bytes: int) -> int:
    return max(0, sum(shares.values()) - size_bytes)


def _blobs(node: Node) -> Sequence[str]:
    """The names of whole blobs on a running node, as the machine sees them."""
    folder = node.path_inside(BLOBS)
    return [path.name for path in folder.iterdir() if len(path.name) == 64] if folder.is_dir() else []
