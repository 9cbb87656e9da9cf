"""Several nodes fetch one repository together: every byte crosses the Hub's link once."""

from k3deploy.domain.weights import Manifest
from k3deploy.remote.hub_cache import manifest_digest
from tests.unit.weights_world import World, world

__all__ = ["world"]


def test_nodes_and_operator_name_a_manifest_alike(world: World) -> None:
    assert manifest_digest(world.manifest) == Manifest.from_dict(world.manifest).digest
    assert manifest_digest({**world.manifest, "commit": "d" * 40}) != manifest_digest(world.manifest)
