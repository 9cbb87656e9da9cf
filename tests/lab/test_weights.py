"""The weights on four real nodes: each way that they can come, and what happens to rented machines meanwhile."""

from collections.abc import Iterator

import pytest

from tests.lab.lab import Lab
from tests.lab.weights_site import VARIANT, WeightsSite

pytestmark = pytest.mark.lab
MIRROR = "s3://weights-mirror/kimi"


@pytest.fixture(scope="module")
def site() -> Iterator[WeightsSite]:
    lab = Lab.up("weights", profile="lab-h100x32", nodes=4, variant=VARIANT, shared=True)
    yield WeightsSite(lab)
    lab.down()


def test_one_volume_is_filled_once_for_all(site: WeightsSite) -> None:
    way = site.way("shared", "strategy: shared, volume: /shared", "storage: {hf_home: /shared/hf}\n")
    said = way.up()
    assert said.code == 0, said
    assert site.from_hub() == {path: file.size for path, file in site.shards.items()}
    site.assert_whole(site.lab.nodes[-1], "/shared/hf")
    assert site.held(site.lab.nodes[0]) == set(), "nothing on a node's own disk"


def test_a_bucket_can_stand_for_the_hub(site: WeightsSite) -> None:
    way = site.way("mirror", f"strategy: mirror, mirror: '{MIRROR}'")
    way.operator.fill_bucket(MIRROR, VARIANT)
    said = way.up()
    assert said.code == 0, said
    assert site.from_hub() == {}
    site.assert_whole(site.lab.nodes[1])


def test_another_hub_can_stand_for_the_hub(site: WeightsSite) -> None:
    site.lab.start_service("mirror")
    way = site.way("other-hub", f"strategy: mirror, mirror: '{site.lab.service('mirror').url}'")
    said = way.up()
    assert said.code == 0, said
    assert site.from_hub() == {}
    site.assert_whole(site.lab.nodes[1])
