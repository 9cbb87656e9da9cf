"""The weights on four real nodes: each way that they can come, and what happens to rented machines meanwhile."""

from collections.abc import Iterator

import pytest

from tests.lab.hub_control import HubControl
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
    assert site.from_hub() == site.sizes
    site.assert_whole(site.lab.nodes[-1], "/shared/hf")
    assert site.held(site.lab.nodes[0]) == set(), "nothing on a node's own disk"


def test_a_bucket_can_stand_for_the_hub(site: WeightsSite) -> None:
    way = site.way("mirror", f"strategy: mirror, mirror: '{MIRROR}'")
    way.operator.fill_bucket(MIRROR, VARIANT)
    said = way.up()
    assert said.code == 0, said
    assert site.from_hub() == {}
    site.assert_whole(site.lab.nodes[1])


def test_another_hub_can_feed_the_swarm(site: WeightsSite) -> None:
    site.lab.start_service("mirror")
    way = site.way("other-hub", f"strategy: swarm, mirror: '{site.lab.service('mirror').url}'")
    said = way.up()
    assert said.code == 0, said
    assert site.from_hub() == {}
    mirrored = HubControl(site.lab, "mirror").stats()["shares"]
    assert {path: sum(mirrored[path].values()) for path in site.shards} == site.sizes
    site.assert_whole(site.lab.nodes[1])


def test_each_byte_leaves_the_hub_once_and_reaches_every_node(site: WeightsSite) -> None:
    way = site.way("swarm", "strategy: swarm")
    said = way.up()
    assert said.code == 0, said
    assert site.from_hub() == site.sizes
    for node in site.lab.nodes:
        assert sum(site.from_hub(node).values()) < site.shard_bytes / 2, "each fetched a part of it"
    site.assert_whole(site.lab.nodes[0])
    site.assert_whole(site.lab.nodes[3])


def test_an_empty_disk_is_filled_by_the_others(site: WeightsSite) -> None:
    way = site.way("swarm", "strategy: swarm")
    assert way.up().code == 0
    site.hub.reset()
    node = site.lab.nodes[2]
    node.fault("wipe-nvme")
    said = way.up()
    assert said.code == 0, said
    assert site.from_hub() == {}
    assert site.held(node) == set(site.shards)


def test_a_node_dies_the_others_finish_and_it_comes_back(site: WeightsSite) -> None:
    """The first node: the one that tells the others what to fetch."""
    way = site.way("swarm", "strategy: swarm")
    dead, *survivors = site.lab.nodes
    site.shape(8)
    with way.going_up() as going:
        site.until_half(going)
        dead.fault("kill")
        its_own = set(site.from_hub(dead)).difference(*(site.held(node) for node in survivors))
        site.until("the others have all", lambda: all(site.held(node) == set(site.shards) for node in survivors), going)
        dead.fault("start")
        said = going.result()
    assert said.code == 0, said
    assert site.held(dead) == set(site.shards)
    twice = {path for path, count in site.from_hub().items() if count > site.sizes[path]}
    assert twice <= its_own, "only what was in its hands, or on it alone"


def test_the_hub_dies_and_nodes_go_on_with_what_they_have(site: WeightsSite) -> None:
    way = site.way("swarm", "strategy: swarm")
    site.shape(8)
    with way.going_up() as going:
        site.until_half(going)
        site.lab.stop_service("hub")

        def is_spread() -> bool:
            held = [site.held(node) for node in site.lab.nodes]
            return held[0] != set() and all(each == held[0] for each in held)

        site.until("all nodes hold the same", is_spread, going)
        site.lab.start_service("hub")
        said = going.result()
    assert said.code == 0, said
    assert site.held(site.lab.nodes[3]) == set(site.shards)


def test_a_full_disk_is_said_and_spoils_nothing(site: WeightsSite) -> None:
    way = site.way("swarm", "strategy: swarm")
    node = site.lab.nodes[1]
    site.shape(8)
    try:
        with way.going_up() as going:
            site.until_half(going)
            node.fault("disk-fill")
            said = going.result()
    finally:
        node.fault("disk-free")
    assert said.code == 3, said
    (error,) = said.json["error"]["failures"]
    assert error["what"].startswith("gpu-02: ")
    assert error["fix"].startswith("free space on")
    for other in (site.lab.nodes[0], *site.lab.nodes[2:]):
        assert site.held(other) == set(site.shards)
    site.shape(0)
    said = way.up()
    assert said.code == 0, said
    site.assert_whole(node)


def test_two_runs_on_the_same_nodes_do_not_meet(site: WeightsSite) -> None:
    second, first = site.way("second", "strategy: swarm"), site.way("swarm", "strategy: swarm")
    assert second.up("client").code == 0
    site.shape(2)
    with first.going_up() as going:
        site.until("the first one fetches", lambda: site.from_hub() != {}, going)
        said = second.up()
        assert said.code == 3, said
        assert {error["what"].split(": ")[1][:13] for error in said.json["error"]["failures"]} == {"another fetch"}
        site.shape(0)
        assert going.result().code == 0
    assert second.up().code == 0
    assert site.from_hub() == site.sizes
