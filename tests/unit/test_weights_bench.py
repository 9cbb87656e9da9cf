"""The benchmark of weights: its bounds by hand, and which moments of a run it counts."""

import pytest

from k3deploy.domain import events as ev
from tests.bench import weights_bound as bound
from tests.bench.weights_cluster import spans

SIZE = 1_200_000_000  # bytes: 9.6 Gbit
EVEN = [100] * 4  # Mbit/s


def test_every_node_by_itself_waits_for_the_slowest_link() -> None:
    assert bound.plain_s(SIZE, EVEN) == 96.0  # 9600 / 100
    assert bound.plain_s(SIZE, [100, 100, 100, 25]) == 384.0  # 9600 / 25


@pytest.mark.parametrize(
    ("hub_mbit", "lan_mbit", "seconds"),
    [
        (EVEN, 1000, 24.0),  # 9600 / 400, more than 9600 x 3/4 / 1000
        ([100, 100, 100, 25], 1000, 9600 / 325),
        (EVEN, 200, 36.0),  # 9600 x 3/4 / 200, more than 24
        ([2] * 18, 200, 9600 / 36),
    ],
)
def test_a_swarm_waits_for_all_links_to_the_hub_or_for_the_private_one(
    hub_mbit: list[int], lan_mbit: int, seconds: float
) -> None:
    assert bound.swarm_s(SIZE, hub_mbit, lan_mbit) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("lan_mbit", "seconds"),
    [(1000, 24.0), (200, 32.0), (50, 64.0), (10, 9600 / 110)],  # 9600 / 400, then 9600 / (100 + the private link)
)
def test_the_best_uses_both_links_of_each_node(lan_mbit: int, seconds: float) -> None:
    assert bound.best_s(SIZE, EVEN, lan_mbit) == pytest.approx(seconds)


def verified(node: str, at: float, phase: str = "weights-verify") -> ev.Event:
    return ev.Verified(at=at, phase=phase, target=node, summary="", has_changed=True, duration_s=1.0)


def test_a_fetch_counts_from_its_first_step_to_the_last_proof_of_the_newest_flow() -> None:
    started = ev.RunStarted(at=0.0, run_id="r", flow="up", profile="p", nodes=("a", "b"))
    events = [
        started,
        ev.StepStarted(at=1.0, phase="weights-fetch", target="a", step="fetch"),
        verified("a", 2.0),
        verified("b", 3.0),
        started,
        ev.StepStarted(at=9.0, phase="client", target="a", step="send"),
        ev.StepStarted(at=10.5, phase="weights-fetch", target="b", step="fetch"),
        ev.StepStarted(at=10.0, phase="weights-fetch", target="a", step="fetch"),
        verified("a", 38.0, "weights-fetch"),
        verified("a", 30.0),
        verified("b", 37.5),
    ]
    assert spans(events, {"a", "b"}) == (10.0, 37.5)
    assert spans(events, {"a"}) == (10.0, 30.0)
    with pytest.raises(AssertionError, match="never proved on c"):
        spans(events, {"a", "c"})
