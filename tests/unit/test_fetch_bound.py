"""What links allow at best: against figures worked out by hand, and the shapings that were measured once."""

import pytest

from k3deploy.remote.fetch_bound import Link, auto_bound_s, hub_bound_s, swarm_bound_s

K3_BYTES = 1_560_936_091_448
LAB_BYTES = 402_800_000
MBIT = 125_000


def _lab(*hub_mbit: int, lan_mbit: int = 1000) -> list[Link]:
    return [Link(LAB_BYTES, each * MBIT, lan_mbit * MBIT) for each in hub_mbit]


@pytest.mark.parametrize(
    ("links", "swarm_s", "hub_s"),
    [
        (_lab(100, 100, 100, 100), 8.06, 32.2),
        (_lab(100, 100, 100, 25), 9.92, 128.9),  # one slow link: S / 325 Mbit/s, and four times as long by itself
        (_lab(100, 100, 100, 100, lan_mbit=200), 12.1, 32.2),  # the links between nodes are the bottleneck: S 3/4 / l
        (_lab(100), 32.2, 32.2),  # nobody to share with
    ],
)
def test_the_bounds_of_the_measured_shapings(links: list[Link], swarm_s: float, hub_s: float) -> None:
    assert swarm_bound_s(LAB_BYTES, links) == pytest.approx(swarm_s, rel=0.005)
    assert hub_bound_s(links) == pytest.approx(hub_s, rel=0.005)


def test_kimi_k3_on_four_nodes_with_800_megabytes_a_second_each() -> None:
    plain = [Link(K3_BYTES, 0.8e9)] * 4
    assert hub_bound_s(plain) / 60 == pytest.approx(32.5, rel=0.005)
    assert swarm_bound_s(K3_BYTES, plain) / 60 == pytest.approx(8.1, rel=0.005)
    with_disk = [Link(K3_BYTES, 0.8e9, 3.0e9, 2.0e9)] * 4
    assert swarm_bound_s(K3_BYTES, with_disk) / 60 == pytest.approx(13, rel=0.005)


def test_where_the_links_between_nodes_are_slow_both_links_together_bound_it() -> None:
    links = _lab(100, 100, 100, 100, lan_mbit=20)
    assert auto_bound_s(LAB_BYTES, links) == pytest.approx(LAB_BYTES / (120 * MBIT))
    assert swarm_bound_s(LAB_BYTES, links) == pytest.approx(LAB_BYTES * 3 / 4 / (20 * MBIT))


def test_what_nodes_have_already_bounds_nothing() -> None:
    """Three full nodes and an empty one: nothing has to come from the Hub, all through the empty node's link."""
    full, empty = Link(0, 12_500_000, 125_000_000), Link(1_200_000_000, 12_500_000, 125_000_000)
    assert swarm_bound_s(0, [full, full, full, empty]) == pytest.approx(1_200 / 137.5)
    assert hub_bound_s([full, full, full, empty]) == pytest.approx(96)


def test_a_rate_that_nobody_has_measured_bounds_nothing() -> None:
    links = [Link(1000, 10.0), Link(1000, 10.0, lan_bps=1.0)]
    assert swarm_bound_s(1000, links) == pytest.approx(1000 / 11.0)  # of the second node alone
    assert auto_bound_s(1000, [Link(1000, 10.0)] * 2) == pytest.approx(50)
