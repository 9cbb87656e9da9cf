"""What a node of a swarm decides, piece by piece: whom it asks, whom it believes, how fast its links are."""

import json
from pathlib import Path

import pytest

from k3deploy.remote.fetch_failure import ABSENT, BUSY, RETRY, failure
from k3deploy.remote.leases_file import LeasesFile
from k3deploy.remote.origin_health import OriginHealth
from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.peer_record import PeerRecord
from k3deploy.remote.rate_meter import RateMeter, RecentRate
from k3deploy.remote.share_peers import Peers, State
from k3deploy.remote.share_protocol import STATE, Me
from k3deploy.remote.standstill import Standstill
from k3deploy.remote.tracker_answer import parse_answer
from k3deploy.remote.tracker_choice import TrackerChoice
from tests.unit.scripted_share import scripted_share

NODES = ["gpu-01", "gpu-02", "gpu-03"]


def _order(choice: TrackerChoice, now: float, nodes: list[str] = NODES) -> list[str]:
    return [attempt.node for attempt in choice.attempts(nodes, now)]


def test_at_first_only_the_first_node_is_asked_and_after_three_seconds_everybody() -> None:
    choice = TrackerChoice(100.0)
    assert _order(choice, 102.9) == ["gpu-01"]
    assert choice.is_settling(102.9)
    assert _order(choice, 103.0) == NODES
    assert not choice.is_settling(103.0)


def test_who_answers_is_asked_first_and_the_earlier_ones_every_five_seconds() -> None:
    choice = TrackerChoice(100.0)
    choice.answered("gpu-02", 110.0)
    assert _order(choice, 114.9) == ["gpu-02", "gpu-03", "gpu-01"]
    assert _order(choice, 115.0) == ["gpu-01", "gpu-02", "gpu-03"]
    assert _order(choice, 115.1) == ["gpu-02", "gpu-03", "gpu-01"]
    choice.answered("gpu-01", 115.2)
    assert _order(choice, 200.0) == NODES


def test_the_one_that_answered_gets_a_second_try_and_those_passed_over_a_short_one() -> None:
    choice = TrackerChoice(100.0)
    choice.answered("gpu-02", 100.0)
    times = {attempt.node: (attempt.times, attempt.connect_s) for attempt in choice.attempts(NODES, 105.0)}
    assert times == {"gpu-01": (1, 0.5), "gpu-02": (2, 2.0), "gpu-03": (1, 2.0)}


def test_a_node_that_left_the_run_is_asked_no_more() -> None:
    choice = TrackerChoice(100.0)
    choice.answered("gpu-01", 101.0)
    assert _order(choice, 104.0, ["gpu-02", "gpu-03"]) == ["gpu-02", "gpu-03"]


def test_a_busy_holder_is_asked_again_within_a_fifth_of_a_second() -> None:
    record = PeerRecord()
    record.refused(3, "gpu-02", failure(BUSY, "HTTP status 503"), 10.0)
    assert record.usable(3, ["gpu-02", "gpu-03"], 10.05) == ["gpu-03"]
    assert sorted(record.usable(3, ["gpu-02", "gpu-03"], 10.2)) == ["gpu-02", "gpu-03"]


def test_who_gave_wrong_bytes_of_a_file_is_never_asked_for_it_again_but_for_others() -> None:
    record = PeerRecord()
    record.gave_wrong_bytes(3, "gpu-02")
    assert record.usable(3, ["gpu-02"], 1e9) == []
    assert record.usable(4, ["gpu-02"], 10.0) == ["gpu-02"]
    assert record.is_cut_off(3, ["gpu-02"])
    assert not record.is_cut_off(3, ["gpu-02", "gpu-03"])


def test_a_file_that_is_gone_from_a_holder_says_nothing_of_its_other_files() -> None:
    record = PeerRecord()
    record.refused(3, "gpu-02", failure(ABSENT, "HTTP status 404"), 10.0)
    assert record.usable(3, ["gpu-02"], 10.5) == []
    assert record.usable(4, ["gpu-02"], 10.5) == ["gpu-02"]
    assert record.usable(3, ["gpu-02"], 11.0) == ["gpu-02"]
    assert not record.is_cut_off(3, ["gpu-02"])
    record.refused(3, "gpu-02", failure(ABSENT, "HTTP status 404"), 11.0)
    record.refused(3, "gpu-02", failure(ABSENT, "HTTP status 404"), 12.0)
    assert record.is_cut_off(3, ["gpu-02"])
    assert not record.is_cut_off(4, ["gpu-02"])


def test_who_cannot_be_reached_is_left_alone_longer_each_time_until_bytes_come() -> None:
    record = PeerRecord()
    pauses = []
    now = 0.0
    for _ in range(6):
        record.refused(3, "gpu-02", failure(RETRY, "refused"), now)
        pauses.append(next(pause for pause in (0.4, 0.8, 1.6, 3.2, 5.0) if record.usable(3, ["gpu-02"], now + pause)))
        now += pauses[-1]
    assert pauses == [0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert record.is_cut_off(3, ["gpu-02"])
    record.gave("gpu-02")
    assert not record.is_cut_off(3, ["gpu-02"])


def test_a_link_is_as_fast_as_its_best_second_of_the_last_four_in_use() -> None:
    meter = RateMeter()
    moved = 0
    rates = [10, 40, 20, 20]
    for number in range(5):
        meter.sample(float(number), moved, is_busy=True)
        moved += rates[number] if number < 4 else 0
    assert meter.bps == 40.0
    for number in range(5, 9):  # the best one is four seconds old, then five
        moved += 20
        meter.sample(float(number), moved, is_busy=True)
    assert meter.bps == 20.0


def test_time_in_which_a_link_had_no_work_says_nothing_of_it() -> None:
    meter = RateMeter()
    meter.sample(0.0, 0, is_busy=True)
    meter.sample(0.5, 50, is_busy=False)
    assert meter.bps == 0.0  # half a second is not enough to know
    meter.sample(10.0, 50, is_busy=True)
    meter.sample(10.5, 100, is_busy=True)
    assert meter.bps == 100.0


def test_bytes_that_come_a_second_time_count_once() -> None:
    meter = RateMeter()
    for now, moved in ((0.0, 0), (0.5, 80), (1.0, 20), (2.0, 100)):
        meter.sample(now, moved, is_busy=True)
    assert meter.moved_bytes == 100
    assert meter.bps == 80.0


def test_the_recent_rate_is_of_four_seconds_by_the_clock() -> None:
    recent = RecentRate()
    for now, moved in ((0.0, 0), (1.0, 400), (5.0, 400), (6.0, 500)):
        recent.sample(now, moved)
    assert recent.bps == 100.0  # 100 bytes from second 5 to 6: what came before is older than four seconds


def test_an_origin_is_down_when_it_fails_for_long_and_gives_nothing() -> None:
    health = OriginHealth(wait_base_s=1.0)
    health.look(0, 1, 100.0)
    health.look(0, 3, 160.0)
    assert not health.is_down  # a minute is not over
    health.look(0, 3, 160.1)
    assert health.is_down
    health.look(1, 3, 170.0)
    assert not health.is_down  # a byte came


def test_one_file_that_fails_among_many_that_come_is_no_dead_origin() -> None:
    health = OriginHealth(wait_base_s=1.0)
    for number in range(200):
        health.look(number, number, float(number))
    assert not health.is_down


def test_few_failures_are_no_dead_origin_however_long_ago() -> None:
    health = OriginHealth(wait_base_s=1.0)
    health.look(0, 2, 0.0)
    health.look(0, 2, 1000.0)
    assert not health.is_down


def test_a_standstill_lasts_until_the_mark_changes() -> None:
    still = Standstill()
    assert still.for_s((1, 2), 10.0) == 0.0
    assert still.for_s((1, 2), 15.0) == 5.0
    assert still.for_s((1, 3), 16.0) == 0.0


def test_leases_are_written_when_they_change_and_every_two_seconds_while_they_grow(tmp_path: Path) -> None:
    leases, path = LeasesFile(str(tmp_path)), tmp_path / "leases.json"
    assert json.loads(path.read_text()) == {}
    leases.write({4: 0}, 10.0)
    assert json.loads(path.read_text()) == {"4": 0}
    leases.write({4: 100}, 11.9)
    assert json.loads(path.read_text()) == {"4": 0}
    leases.write({4: 200}, 12.0)
    assert json.loads(path.read_text()) == {"4": 200}
    leases.write({4: 200, 5: 0}, 12.1)
    assert json.loads(path.read_text()) == {"4": 200, "5": 0}


_ANSWER = {
    "leases": [3],
    "holders": {"4": ["gpu-02"]},
    "revoked": [],
    "bounds_s": {"hub": 20, "swarm": 10.5},
    "hub_bytes": 77,
}


def test_an_answer_is_taken_apart() -> None:
    answer = parse_answer(json.dumps(_ANSWER).encode())
    assert (answer.leases, answer.holders, answer.revoked) == ([3], {4: ["gpu-02"]}, [])
    assert (answer.hub_bytes, answer.bounds_s) == (77, {"hub": 20.0, "swarm": 10.5})


def test_nothing_is_known_of_rates_at_first() -> None:
    assert parse_answer(json.dumps({**_ANSWER, "bounds_s": None}).encode()).bounds_s == {}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"[" * 100_000, b"<html>", b"{}", b'{"error": "x"}', json.dumps({**_ANSWER, "leases": ["a"]}).encode()]
    + [json.dumps({**_ANSWER, key: None}).encode() for key in ("leases", "holders", "revoked", "hub_bytes")]
    + [json.dumps({**_ANSWER, "holders": {"4": 5}}).encode(), b'{"leases": [Infinity]}'],
)
def test_what_is_no_answer_is_not_believed(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_answer(body)


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (b'{"manifest": "m", "held": [1], "leases": {"2": 3}}', State([1], {2: 3})),
        (b'{"manifest": "m", "held": [Infinity], "leases": {}}', None),
        (b'{"manifest": "m", "held": [1], "leases": []}', None),
        (b'{"manifest": "other", "held": [1], "leases": {}}', None),
        (b"[" * 100_000, None),
    ],
)
def test_of_a_share_that_makes_no_sense_nothing_is_known(tmp_path: Path, body: bytes, state: State | None) -> None:
    (tmp_path / "peers.json").write_text(json.dumps({"nodes": {"gpu-02": "127.0.0.1"}}))
    with scripted_share(lambda _: {}, blobs={STATE: body}) as share:
        port = share.server_address[1]
        peers = Peers(PeerList(str(tmp_path / "peers.json")), me=Me("127.0.0.1", "token"), ports=[port], manifest="m")
        assert peers.states(["gpu-02"]) == ({} if state is None else {"gpu-02": state})
