"""Several nodes fetch one repository together: every byte crosses the Hub's link once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from k3deploy.domain.weights import Manifest
from k3deploy.remote.hub_cache import manifest_digest
from tests.lab.hub import Hub
from tests.unit.swarm_nodes import swarm
from tests.unit.weights_world import World, serving, world

__all__ = ["world"]


@pytest.fixture
def hub(world: World) -> Iterator[Hub]:
    with serving(world) as hub:
        yield hub


def large_files(world: World) -> list[str]:
    return [file["path"] for file in world.manifest["files"] if file["sha256"]]


def test_nodes_and_operator_name_a_manifest_alike(world: World) -> None:
    assert manifest_digest(world.manifest) == Manifest.from_dict(world.manifest).digest
    assert manifest_digest({**world.manifest, "commit": "d" * 40}) != manifest_digest(world.manifest)


def test_every_byte_of_the_shards_crosses_the_hubs_link_once(world: World, hub: Hub, tmp_path: Path) -> None:
    with swarm(world, hub, tmp_path, 3) as nodes:
        nodes.start()
        ran = nodes.finish()
        sent = hub.stats.document()["files"]
        for path in large_files(world):
            assert sent[path]["bytes"] == world.file(path)["size"], path
        for node in nodes.nodes:
            proof = node.cache.prove()
            assert (proof["proved"], proof["hashed"], proof["faults"]) == (29, 0, [])
            assert node.cache.ask()["partials"] == []
        large_bytes = sum(world.file(path)["size"] for path in large_files(world))
        small_bytes = 1258977 - large_bytes
        assert sum(each.result["peer_bytes"] for each in ran.values()) == 2 * large_bytes
        assert sum(each.result["hub_bytes"] for each in ran.values()) == large_bytes + 3 * small_bytes
