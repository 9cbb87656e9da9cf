"""The lease queue one report at a time: what is granted to whom, what is taken back, what is told."""

from typing import Any

import pytest

from k3deploy.remote.lease_plan import Fetcher, horizon_s
from k3deploy.remote.lease_queue import LeaseQueue
from k3deploy.remote.lease_rate import LinkRate
from k3deploy.remote.share_report import parse_report

SIZE = 1000
SIZES = dict.fromkeys(range(8), SIZE)


def queue(*names: str, sizes: dict[int, int] = SIZES) -> LeaseQueue:
    made = LeaseQueue(sizes)
    made.order = names or ("a", "b")
    return made


def ask(asked: LeaseQueue, node: str, now: float, sizes: dict[int, int] = SIZES, **words: Any) -> dict[str, Any]:
    """A report of a node that would begin one file and knows its rate, except for what is said here."""
    body = {"node": node, "room": 1, "hub_bps": 100, **words}
    return asked.answer(parse_report(body, sizes), now)


def test_nodes_are_granted_different_files_each_from_its_own_part() -> None:
    asked = queue()
    assert ask(asked, "a", 0.0)["leases"] == [0]
    assert ask(asked, "b", 0.0)["leases"] == [1]
    assert ask(asked, "a", 0.5, held=[0])["leases"] == [2]


def test_a_node_that_is_through_with_its_part_takes_the_far_end_of_anothers() -> None:
    asked = queue()
    assert ask(asked, "a", 0.0, held=[0, 2, 4, 6])["leases"] == [7]


def test_a_node_without_room_is_granted_nothing() -> None:
    assert ask(queue(), "a", 0.0, room=0)["leases"] == []


def test_until_anything_is_held_each_node_fetches_one_file() -> None:
    asked = queue()
    assert ask(asked, "a", 0.0, room=3)["leases"] == [0]
    assert ask(asked, "a", 0.5, room=2, leases={"0": 900})["leases"] == []


def test_leases_begin_one_after_another() -> None:
    """Two at a time: the second when the first is half here, so that they land half a file apart for good."""
    asked = queue()
    assert ask(asked, "a", 0.0, room=2, held=[0])["leases"] == [2]
    assert ask(asked, "a", 1.0, room=1, held=[0], leases={"2": 499})["leases"] == []
    assert ask(asked, "a", 1.1, room=1, held=[0], leases={"2": 500})["leases"] == [4]


def test_what_must_be_here_of_a_block_that_is_not_written_yet_counts() -> None:
    """10 MB at 5 MB/s: half of it is here after a second, although nothing can be seen."""
    sizes = dict.fromkeys(range(4), 10_000_000)
    asked = queue(sizes=sizes)
    assert ask(asked, "a", 0.0, sizes, room=2, held=[0], hub_bps=5_000_000)["leases"] == [2]
    unseen: dict[str, Any] = {"held": [0], "leases": {"2": 0}, "room": 1, "hub_bps": 5_000_000}
    assert ask(asked, "a", 0.9, sizes, **unseen)["leases"] == []
    assert ask(asked, "a", 1.1, sizes, **unseen)["leases"] == [3]


def test_a_lease_that_the_node_does_not_name_was_never_heard_of_and_goes_to_others() -> None:
    asked = queue(sizes={0: SIZE})
    assert ask(asked, "a", 0.0, {0: SIZE})["leases"] == [0]
    assert ask(asked, "b", 0.1, {0: SIZE})["leases"] == []
    assert ask(asked, "a", 0.5, {0: SIZE}, room=0)["leases"] == []
    assert ask(asked, "b", 0.6, {0: SIZE})["leases"] == [0]


def test_a_file_that_was_given_back_rests_for_that_node_alone() -> None:
    asked = queue(sizes={0: SIZE})
    ask(asked, "a", 0.0, {0: SIZE})
    assert ask(asked, "a", 1.0, {0: SIZE}, failed=[0])["leases"] == []
    assert ask(asked, "a", 10.9, {0: SIZE})["leases"] == []
    assert ask(asked, "a", 11.0, {0: SIZE})["leases"] == [0]
    asked = queue(sizes={0: SIZE})
    ask(asked, "a", 0.0, {0: SIZE})
    ask(asked, "a", 1.0, {0: SIZE}, failed=[0])
    assert ask(asked, "b", 1.1, {0: SIZE})["leases"] == [0]


def test_the_leases_of_a_node_that_is_gone_for_ten_seconds_are_free() -> None:
    asked = queue(sizes={0: SIZE, 1: SIZE})
    sizes = {0: SIZE, 1: SIZE}
    assert ask(asked, "a", 0.0, sizes)["leases"] == [0]
    assert ask(asked, "b", 0.0, sizes)["leases"] == [1]
    # b is not idle, so it takes over nothing before a is given up.
    assert ask(asked, "b", 9.9, sizes, leases={"1": 990})["leases"] == []
    assert ask(asked, "b", 10.1, sizes, leases={"1": 991}, held=[])["leases"] == []  # nobody holds anything yet
    assert ask(asked, "b", 10.2, sizes, held=[1])["leases"] == [0]


def test_an_idle_node_takes_over_what_has_not_moved_for_five_seconds() -> None:
    sizes = {0: SIZE}
    asked = queue(sizes=sizes)
    ask(asked, "a", 0.0, sizes, hub_bps=1000)
    ask(asked, "a", 1.0, sizes, hub_bps=1000, room=0, leases={"0": 100})
    assert ask(asked, "b", 5.9, sizes)["leases"] == []  # a is silent, but not for long
    ask(asked, "a", 5.95, sizes, hub_bps=1000, room=0, leases={"0": 100})
    assert ask(asked, "b", 6.1, sizes)["leases"] == [0]


def test_a_client_that_writes_large_blocks_over_a_slow_link_stands_still_for_longer() -> None:
    """10 MiB at 1 MB/s: nothing is seen for 10.5 s, so only after twice that is it time to do something."""
    sizes = {0: 100_000_000}
    asked = queue(sizes=sizes)
    slow: dict[str, Any] = {"hub_bps": 1_000_000, "leases": {"0": 95_000_000}, "room": 0}
    ask(asked, "a", 0.0, sizes, **slow)
    for tenth in range(1, 209):
        ask(asked, "a", tenth / 10, sizes, **slow)
        assert ask(asked, "b", tenth / 10, sizes, hub_bps=10_000_000)["leases"] == []
    ask(asked, "a", 21.0, sizes, **slow)
    assert ask(asked, "b", 21.0, sizes, hub_bps=10_000_000)["leases"] == [0]


def test_a_lease_is_doubled_when_that_takes_less_than_half_the_time_and_only_once() -> None:
    sizes = {0: SIZE}
    asked = queue("a", "b", "c", sizes=sizes)
    ask(asked, "a", 0.0, sizes, hub_bps=10)
    left: dict[str, Any] = {"leases": {"0": 100}, "room": 0, "hub_bps": 10}  # 90 s to go
    ask(asked, "a", 1.0, sizes, **left)
    assert ask(asked, "b", 1.1, sizes, hub_bps=22)["leases"] == []  # 45.5 s
    assert ask(asked, "b", 1.2, sizes, hub_bps=23)["leases"] == [0]  # 43.5 s
    assert ask(asked, "c", 1.3, sizes, hub_bps=1000)["leases"] == []


def test_a_stalled_lease_goes_to_a_busy_node_too_after_a_minute() -> None:
    asked = queue()
    ask(asked, "a", 0.0)
    for second in range(1, 60):
        ask(asked, "a", second, leases={"0": 0}, room=0)
        held = [1, 2, 3, 4, 5, 6]
        assert ask(asked, "b", second, leases={"7": 10 * second}, held=held, room=1)["leases"] == []
    ask(asked, "a", 60.0, leases={"0": 0}, room=0)
    assert ask(asked, "b", 60.1, leases={"7": 601}, held=[1, 2, 3, 4, 5, 6], room=1)["leases"] == [0]


def test_what_has_landed_is_waited_for_while_it_is_hashed_and_takes_no_room() -> None:
    """A shard of 16 GB takes 18 s; a node that finds many on its disk has them in hand for minutes."""
    asked = queue()
    landed = {"0": SIZE, "2": SIZE}
    assert ask(asked, "a", 0, leases=landed, held=[4])["leases"] == [6]
    for second in range(1, 200, 2):
        assert ask(asked, "a", second, leases=landed, held=[4, 6], room=0)["leases"] == []
        assert ask(asked, "b", second + 1, held=[1, 3, 5, 7])["leases"] == []


def test_what_a_node_fetches_already_is_taken_as_it_is() -> None:
    asked = queue()
    ask(asked, "a", 0.0, leases={"1": 10}, room=0)
    assert 1 not in ask(asked, "b", 0.1, held=[0])["leases"]


def test_a_new_tracker_grants_nothing_that_it_was_told_of() -> None:
    asked = queue("a", "b", "c")
    asked.learn("b", held=[0, 1, 2, 3], landed={4: 10, 5: 20}, now=0.0)
    answer = ask(asked, "a", 0.1, room=4, held=[6])
    assert answer["leases"] == [7]
    assert answer["holders"] == {str(index): ["b"] for index in range(4)}


def test_a_node_known_by_its_share_alone_holds_until_it_is_silent_for_ten_seconds() -> None:
    asked = queue("a", "b", "c")
    asked.learn("c", held=[0], landed={}, now=0.0)
    assert asked.silent(4.0, 4.0) == ["a", "b"]
    assert asked.silent(4.1, 4.0) == ["a", "b", "c"]
    assert ask(asked, "a", 10.0)["holders"] == {"0": ["c"]}
    assert ask(asked, "a", 10.1)["holders"] == {}


def test_what_a_node_can_have_from_no_holder_it_fetches_itself() -> None:
    asked = queue()
    ask(asked, "b", 0.0, held=list(range(8)))
    assert ask(asked, "a", 0.1)["leases"] == []
    assert ask(asked, "a", 0.2, cut_off=[3])["leases"] == [3]
    assert ask(asked, "a", 0.3, cut_off=[3], leases={"3": 1}, room=0)["revoked"] == []


def test_a_file_that_is_fetched_elsewhere_is_waited_for_by_who_is_cut_off_from_its_holders() -> None:
    asked = queue("a", "b", "c")
    ask(asked, "b", 0.0, held=list(range(8)))
    assert ask(asked, "a", 0.1, cut_off=[3])["leases"] == [3]
    assert ask(asked, "c", 0.2, cut_off=[3])["leases"] == []


def test_a_transfer_is_revoked_when_a_peer_holds_the_file() -> None:
    asked = queue()
    ask(asked, "b", 0.0, held=[2])
    assert ask(asked, "a", 0.1, leases={"0": 10, "2": 10}, room=0)["revoked"] == [2]


@pytest.mark.parametrize(
    ("lan_bps", "backlog_bytes", "revoked"),
    [
        (10, 5000, []),  # 600 s of what the peers would have to give, this file of 1000 bytes included
        (1000, 5000, [2]),  # 6 s
        (99, 0, []),  # 10.1 s for this file alone, which is in no backlog as long as the node fetches it
        (101, 0, [2]),
    ],
)
def test_auto_keeps_a_transfer_that_ends_before_the_peers_are_through(
    lan_bps: int, backlog_bytes: int, revoked: list[int]
) -> None:
    """10 s of the transfer are left."""
    asked = queue()
    ask(asked, "b", 0.0, held=[2])
    words: dict[str, Any] = {
        "strategy": "auto",
        "lan_bps": lan_bps,
        "lan_backlog_bytes": backlog_bytes,
        "leases": {"2": 0},
        "room": 0,
    }
    assert ask(asked, "a", 0.1, **words)["revoked"] == revoked


@pytest.mark.parametrize(
    ("words", "leases"),
    [
        ({"lan_bps": 100, "lan_backlog_bytes": 1100}, [6]),  # 11 s from the peers, 10 s from the Hub
        ({"lan_bps": 100, "lan_backlog_bytes": 900}, []),
        ({"lan_bps": 100, "lan_backlog_bytes": 1100, "strategy": "swarm"}, []),
        ({"lan_bps": 401, "lan_backlog_bytes": 99_000}, []),  # the Hub's link would add less than a quarter
        ({"lan_bps": 100, "lan_backlog_bytes": 1100, "pulling": [6]}, [7]),
        ({"lan_bps": 100, "lan_backlog_bytes": 1100, "hub_bps": None}, []),
    ],
)
def test_auto_fetches_again_what_is_sooner_from_the_hub(words: dict[str, Any], leases: list[int]) -> None:
    """Of the rarest files first: c holds all but the last two as well."""
    asked = queue("a", "b", "c")
    ask(asked, "b", 0.0, held=list(range(8)))
    ask(asked, "c", 0.0, held=list(range(6)), room=0)
    assert ask(asked, "a", 0.1, held=[0], **{"strategy": "auto", **words})["leases"] == leases


def test_only_peers_and_only_what_is_lacking_are_named_as_holders() -> None:
    asked = queue("a", "b", "c")
    ask(asked, "b", 0.0, held=[0, 1])
    ask(asked, "c", 0.0, held=[1, 2])
    assert ask(asked, "a", 0.1, held=[0])["holders"] == {"1": ["b", "c"], "2": ["c"]}


def test_the_run_is_complete_when_every_node_of_it_is() -> None:
    asked = queue()
    everything = list(range(8))
    assert not queue("a").is_complete()
    ask(asked, "a", 0.0, held=everything)
    assert not asked.is_complete()
    assert ask(asked, "a", 0.5, held=everything, hub_bytes=700)["hub_bytes"] == 700
    asked.learn("b", everything, {}, 1.0)
    assert asked.is_complete()


def test_bounds_are_told_when_every_node_knows_its_rate() -> None:
    """8,000 bytes, half of them on `a` already: the rest through 100 + 25 B/s is 32 s; by itself, b needs 320 s."""
    asked = queue()
    assert ask(asked, "a", 0.0, held=[0, 1, 2, 3])["bounds_s"] == {"hub": 40.0, "swarm": 40.0, "auto": 40.0}
    assert ask(asked, "b", 0.0, hub_bps=0)["bounds_s"] is None
    bounds_s = {"hub": 320.0, "swarm": 32.0, "auto": 32.0}
    assert ask(asked, "b", 0.5, hub_bps=25, lan_bps=775)["bounds_s"] == bounds_s
    # What has landed meanwhile changes no bound.
    assert ask(asked, "b", 9.0, hub_bps=25, lan_bps=775, held=[7])["bounds_s"] == bounds_s


def test_a_link_is_measured_between_the_moments_at_which_blocks_come() -> None:
    """2 MB/s, seen in blocks of 10 MB after 5 s each; idle time and a client that is starting count for nothing."""
    rate = LinkRate()
    rate.sample(0.0, 0, was_busy=False)
    for second in range(3, 60):
        blocks = max(0, second - 3) // 5
        rate.sample(second, 10_000_000 * blocks, was_busy=True)
        assert rate.bps is None if second < 13 else rate.bps == 2_000_000
    rate.sample(200.0, 110_000_000, was_busy=False)
    rate.sample(202.0, 114_000_000, was_busy=True)
    assert rate.bps == pytest.approx(2_000_000, rel=0.25)


def test_a_link_that_has_become_slow_is_seen_as_slow_after_a_while() -> None:
    rate = LinkRate()
    for half in range(40):
        rate.sample(half / 2, 6_000_000 * half, was_busy=True)
    assert rate.bps == 12_000_000
    for half in range(40, 70):
        rate.sample(half / 2, 234_000_000 + 3_000_000 * (half - 39), was_busy=True)
    assert rate.bps == 6_000_000


def test_a_fetch_that_begins_anew_is_measured_anew() -> None:
    rate = LinkRate()
    for second in range(10):
        rate.sample(second, 1000 * second, was_busy=True)
    rate.sample(10, 0, was_busy=True)
    rate.sample(11, 5, was_busy=True)
    assert rate.bps is None
    assert rate.total_bytes == 9005


@pytest.mark.parametrize(
    ("sizes", "asker", "others", "may_begin"),
    [
        ([10], Fetcher(0, 1.0), [], True),
        ([10], Fetcher(0, 1.0), [Fetcher(0, 4.0)], False),  # 10 s against 2.5 s
        ([10] * 3, Fetcher(0, 1.0), [Fetcher(0, 4.0)], False),  # 10 s against 7.5 s for all three
        ([10] * 4, Fetcher(0, 1.0), [Fetcher(0, 4.0)], True),  # 10 s either way
        ([10] * 5, Fetcher(0, 1.0), [Fetcher(0, 4.0)], True),  # 10 s against 12.5 s
        ([10], Fetcher(0, 1.0), [Fetcher(30, 4.0)], True),  # the fast one has 7.5 s to do first
        ([10], Fetcher(5, 1.0), [Fetcher(30, 4.0)], False),
        ([10], Fetcher(0, 0.97), [Fetcher(0, 1.0)], True),  # as fast, as far as anybody can measure
    ],
)
def test_a_node_may_begin_a_file_unless_others_end_sooner_without_it(
    sizes: list[int], asker: Fetcher, others: list[Fetcher], may_begin: bool
) -> None:
    within_s = horizon_s(sizes, asker, others)
    assert (within_s is not None and asker.finish_s(10) <= within_s) == may_begin
