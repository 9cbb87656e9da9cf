"""What a node of a swarm does next, as its tracker, its peers and its link to the origin would have it."""

from typing import Any

import pytest

from k3deploy.remote.fetch_failure import DISK_FULL, RETRY, WRONG, failure
from k3deploy.remote.fetch_policy import Moving
from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.origin_health import OriginHealth
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.swarm_plan import SwarmPlan
from k3deploy.remote.swarm_pulls import Choice
from k3deploy.remote.tracker_answer import Answer

GB = 10**9
# File 0 is a small one without a sha256, which the swarm does not speak of; 1 to 5 are shards.
FILES = [
    Wanted("config.json", 700, "b" * 40, is_sha256=False),
    *(Wanted(f"model-{n}.safetensors", GB, str(n) * 64, is_sha256=True) for n in range(1, 6)),
]
STILL = Moving({}, {}, 0, 0, 0.0, 0.0, is_origin_ready=True)
HEALTHY = OriginHealth(1.0)


def _path(index: int) -> str:
    return FILES[index].path


def _moving(**more: Any) -> Moving:
    return STILL._replace(**more)


def _answer(**more: Any) -> Answer:
    return Answer([], {}, [], 0, {})._replace(**more)


class Node:
    """A plan with its queue. Everything is lacked but what is said to be `here`."""

    def __init__(
        self,
        *,
        here: tuple[int, ...] = (),
        unproved: tuple[int, ...] = (),
        in_flight: int = 2,
        is_auto: bool = False,
    ) -> None:
        self.queue = FetchQueue(FILES, wait_base_s=1.0)
        lacking = {file.path for index, file in enumerate(FILES) if index not in here}
        self.plan = SwarmPlan(
            FILES, lacking, {_path(each) for each in unproved}, self.queue, in_flight=in_flight, is_auto=is_auto
        )

    def begin(self, now: float = 0.0) -> int | None:
        """The file that would begin to come from the origin now."""
        item = self.queue.next(now, is_small=False)
        return None if item is None else FILES.index(item.file)

    def pull(self, now: float = 0.0, moving: Moving = STILL) -> Choice | None:
        return self.plan.next_pull(moving, now)

    def report(self, moving: Moving = STILL, health: OriginHealth = HEALTHY) -> dict[str, Any]:
        return self.plan.report(moving, health)

    def ended(self, index: int, kind: str, now: float = 0.0, **word: Any) -> bool:
        """A receiver has let go of a file; whether what is here of it has to make way."""
        return self.plan.pull_ended(_path(index), {"failure": failure(kind, "so it is"), **word}, now)


def test_a_granted_file_may_begin_and_is_named_from_then_on() -> None:
    node = Node()
    assert node.begin() is None
    assert node.report()["room"] == 2
    assert node.plan.learn(_answer(leases=[3]), [], STILL) == []
    assert (node.report()["leases"], node.report()["room"]) == ({"3": 0}, 1)
    assert node.begin() == 3
    report = node.report(_moving(from_origin={_path(3): 400}))
    assert (report["leases"], report["lan_backlog_bytes"]) == ({"3": 400}, 4 * GB)


def test_a_file_that_has_landed_needs_no_room() -> None:
    node = Node()
    node.plan.learn(_answer(leases=[3]), [], STILL)
    assert node.report(_moving(from_origin={_path(3): GB}))["room"] == 2


def test_there_is_no_room_before_the_client_has_started_or_where_the_origin_is_down() -> None:
    assert Node().report(_moving(is_origin_ready=False))["room"] == 0
    down = OriginHealth(1.0)
    down.is_down = True
    assert Node().report(health=down)["room"] == 0


def test_another_lease_could_begin_when_the_others_are_far_enough() -> None:
    node = Node()
    assert node.plan.could_begin(STILL, HEALTHY)
    assert not node.plan.could_begin(_moving(is_origin_ready=False), HEALTHY)
    node.plan.learn(_answer(leases=[3]), [], STILL)
    assert not node.plan.could_begin(_moving(from_origin={_path(3): GB // 2 - 1}), HEALTHY)
    assert node.plan.could_begin(_moving(from_origin={_path(3): GB // 2}), HEALTHY)
    node.plan.learn(_answer(leases=[4]), [], STILL)
    half = {_path(3): GB // 2, _path(4): GB // 2}
    assert not node.plan.could_begin(_moving(from_origin=half), HEALTHY)  # there is no room for a third
    assert node.plan.could_begin(_moving(from_origin={**half, _path(3): GB}), HEALTHY)


def test_what_is_here_is_held_and_a_small_file_is_never_spoken_of() -> None:
    node = Node(here=(0, 1, 4))
    assert node.report()["held"] == [1, 4]
    node.plan.proved(FILES[2])
    node.plan.proved(FILES[0])
    assert node.report()["held"] == [1, 2, 4]


def test_a_revoked_lease_is_let_go_and_then_taken_from_its_holder() -> None:
    node = Node()
    node.plan.learn(_answer(leases=[3]), [], STILL)
    node.begin()
    moving = _moving(from_origin={_path(3): 400})
    assert node.plan.learn(_answer(revoked=[3], holders={3: ["gpu-02"]}), [], moving) == [_path(3)]
    assert node.report(moving)["leases"] == {}
    assert node.pull() == Choice(FILES[3], ["gpu-02"], is_fresh=False)


@pytest.mark.parametrize(
    ("landed", "lan_bps", "is_stopped"),
    [
        (0, 0.11 * GB, True),  # 9.1 s from the peer against 10 s
        (0, 0.09 * GB, False),
        (GB // 2, 0.11 * GB, False),  # 5 s are left
        (GB // 2, 0.21 * GB, True),
    ],
)
def test_a_revoked_lease_goes_on_when_the_rest_of_it_is_here_sooner(
    landed: int, lan_bps: float, *, is_stopped: bool
) -> None:
    node = Node()
    node.plan.learn(_answer(leases=[3]), [], STILL)
    node.begin()
    moving = _moving(from_origin={_path(3): landed}, hub_bps=0.1 * GB, lan_bps=lan_bps)
    stopped = node.plan.learn(_answer(revoked=[3], holders={3: ["a"]}), [], moving)
    assert stopped == ([_path(3)] if is_stopped else [])
    assert ("3" in node.report(moving)["leases"]) != is_stopped


def test_what_was_granted_and_revoked_twice_is_kept_the_third_time() -> None:
    node = Node()
    for stopped in ([_path(3)], [_path(3)], []):
        node.plan.learn(_answer(leases=[3]), [], STILL)
        assert node.plan.learn(_answer(revoked=[3]), [], STILL) == stopped


def test_a_revoked_lease_that_has_not_begun_never_begins() -> None:
    node = Node()
    node.plan.learn(_answer(leases=[3]), [], STILL)
    node.plan.learn(_answer(revoked=[3]), [], STILL)
    node.plan.tidy_up(HEALTHY)
    assert node.begin() is None


def test_a_lease_that_is_of_no_use_is_given_back_until_the_tracker_has_heard_it() -> None:
    node = Node(here=(1,))
    node.plan.learn(_answer(holders={2: ["gpu-02"]}), [], STILL)
    node.pull()
    node.plan.learn(_answer(leases=[1, 2, 99], holders={2: ["gpu-02"]}), [], STILL)
    assert node.report()["failed"] == [1, 2, 99]
    assert node.report()["leases"] == {}
    node.plan.learn(_answer(holders={2: ["gpu-02"]}), [1, 2], STILL)
    assert node.report()["failed"] == [99]


def test_the_rarest_file_is_taken_first_and_none_twice() -> None:
    node = Node()
    node.plan.learn(_answer(holders={1: ["a", "b", "c"], 2: ["c"], 3: ["a", "b"]}), [], STILL)
    taken = [node.pull() for _ in range(4)]
    assert [FILES.index(each.file) for each in taken if each] == [2, 3, 1]
    assert taken[3] is None
    assert node.report()["pulling"] == [1, 2, 3]


def test_holders_that_are_asked_already_come_last() -> None:
    node = Node()
    node.plan.learn(_answer(holders={1: ["a"], 2: ["a", "b"], 3: ["a", "b", "c"]}), [], STILL)
    choices = [node.pull() for _ in range(3)]
    assert [choice.holders[0] for choice in choices if choice and choice.holders] == ["a", "b", "c"]


def test_what_comes_from_the_origin_is_not_pulled_as_well() -> None:
    node = Node()
    node.plan.learn(_answer(leases=[3], holders={3: ["gpu-02"]}), [], STILL)
    assert node.pull() is None


def test_a_single_giver_of_wrong_bytes_is_not_asked_again_for_that_file() -> None:
    node = Node()
    node.plan.learn(_answer(holders={3: ["a"]}), [], STILL)
    node.pull()
    node.ended(3, WRONG, gave=["a"], refused={})
    assert node.pull(1e6) is None
    assert node.report()["cut_off"] == [3]
    node.plan.learn(_answer(holders={3: ["a", "b"]}), [], STILL)
    assert node.pull() == Choice(FILES[3], ["b"], is_fresh=False)


@pytest.mark.parametrize("gave", [["a", "b"], ["", "a"], [""]])
def test_of_several_givers_nobody_is_accused_before_one_alone_gave_it_whole(gave: list[str]) -> None:
    node = Node()
    node.plan.learn(_answer(holders={3: ["a", "b"]}), [], STILL)
    node.pull()
    node.ended(3, WRONG, gave=gave, refused={})
    again = node.pull(1.0)
    assert again is not None
    assert again.holders is not None
    assert (again.is_fresh, len(again.holders)) == (True, 1)
    node.ended(3, WRONG, gave=again.holders, refused={})
    last = node.pull(1.0)
    assert last is not None
    assert last.holders == [({"a", "b"} - set(again.holders)).pop()]


def test_a_receiver_that_was_killed_is_held_against_the_holder_it_asked() -> None:
    node = Node()
    node.plan.learn(_answer(holders={3: ["a"]}), [], STILL)
    for _ in range(3):
        assert node.pull(100.0) is not None
        assert not node.ended(3, RETRY, was_killed=True)
    assert node.report()["cut_off"] == [3]


def test_a_failure_of_this_node_is_held_against_nobody_and_ends_it_the_fifth_time() -> None:
    node = Node()
    node.plan.learn(_answer(holders={3: ["a"]}), [], STILL)
    for now in (10.0, 11.0, 12.0, 13.0):
        assert node.pull(now) is not None
        node.ended(3, RETRY, now)
        assert node.pull(now + 0.9) is None
    assert node.report()["cut_off"] == []
    node.pull(14.0)
    with pytest.raises(Refusal, match=_path(3)):
        node.ended(3, RETRY, 14.0)


def test_a_disk_that_takes_nothing_more_ends_it() -> None:
    node = Node()
    node.plan.learn(_answer(holders={3: ["a"]}), [], STILL)
    node.pull()
    with pytest.raises(Refusal) as refused:
        node.ended(3, DISK_FULL)
    assert refused.value.context["kind"] == "disk"


def test_files_to_be_proved_are_named_as_ours_and_proved_when_nothing_can_be_pulled() -> None:
    node = Node(unproved=(2,))
    assert node.report()["leases"] == {"2": GB}
    assert (node.report()["room"], node.report()["lan_backlog_bytes"]) == (2, 4 * GB)
    node.plan.learn(_answer(holders={3: ["a"]}), [], STILL)
    assert node.pull() == Choice(FILES[3], ["a"], is_fresh=False)
    assert node.pull() == Choice(FILES[2], None, is_fresh=False)
    assert node.pull() is None
    assert not node.ended(2, RETRY, was_killed=True)  # its bytes may be right all the same
    assert node.pull() == Choice(FILES[2], None, is_fresh=False)
    assert node.ended(2, WRONG)
    assert node.report()["leases"] == {}
    node.plan.learn(_answer(holders={2: ["a"], 3: ["a"]}), [], STILL)
    assert node.pull(2.0) == Choice(FILES[2], ["a"], is_fresh=False)


def test_alone_everything_comes_from_the_origin_but_what_a_peer_is_giving() -> None:
    node = Node(here=(1,), unproved=(2,))
    node.plan.learn(_answer(holders={3: ["a"]}), [], STILL)
    node.pull()
    node.plan.go_alone()
    assert [node.begin(), node.begin(), node.begin()] == [4, 5, None]


def test_back_from_being_alone_only_what_has_begun_stays_ours() -> None:
    node = Node(here=(1, 2))
    node.plan.go_alone()
    assert node.begin() == 3
    node.plan.learn(_answer(), [], _moving(from_origin={_path(3): 400}))
    node.plan.tidy_up(HEALTHY)
    assert node.report()["leases"] == {"3": 0}
    assert node.begin() is None


def test_after_three_failures_a_lease_is_given_back_and_may_come_again() -> None:
    node = Node()
    for _ in range(2):
        node.plan.learn(_answer(leases=[3]), node.report()["failed"], STILL)
        for _ in range(3):
            assert node.begin(1e6) == 3
            assert node.report()["failed"] == []
            node.queue.failed(_path(3), failure(RETRY, "HTTP status 503"), 0.0)
            node.plan.tidy_up(HEALTHY)
        assert node.report()["failed"] == [3]
        assert node.begin(1e6) is None


def test_what_the_origin_never_gives_is_given_back() -> None:
    node = Node()
    node.plan.learn(_answer(leases=[3]), [], STILL)
    node.begin()
    node.plan.give_up(_path(3))
    node.plan.give_up(_path(0))
    assert (node.report()["failed"], node.report()["leases"]) == ([3], {})
    node.plan.learn(_answer(leases=[3]), [3], STILL)
    assert (node.report()["failed"], node.report()["leases"]) == ([3], {})
    node.plan.go_alone()
    assert sorted(node.report()["leases"]) == ["1", "2", "4", "5"]


def test_a_dead_origin_gives_all_leases_back() -> None:
    node, down = Node(), OriginHealth(1.0)
    node.plan.learn(_answer(leases=[3, 4]), [], STILL)
    down.is_down = True
    node.plan.tidy_up(down)
    assert (node.report()["failed"], node.plan.is_idle) == ([3, 4], True)


def test_rates_that_are_not_known_are_not_told() -> None:
    assert (Node().report()["hub_bps"], Node().report()["lan_bps"]) == (None, None)
    report = Node().report(_moving(hub_bps=5.0, lan_bps=7.0, hub_bytes=12, hub_large_bytes=9))
    assert (report["hub_bps"], report["lan_bps"], report["hub_bytes"]) == (5.0, 7.0, 9)


def test_the_backlog_is_what_has_still_to_come_from_peers() -> None:
    node = Node(here=(1,))
    node.plan.learn(_answer(leases=[5], holders={3: ["a"]}), [], STILL)
    node.pull()
    assert node.report(_moving(from_peers={_path(3): 400}))["lan_backlog_bytes"] == 3 * GB - 400


@pytest.mark.parametrize(
    ("hub_bps", "lan_bps", "is_pulled"),
    [
        (0.0, 0.1 * GB, True),  # not known yet
        (0.1 * GB, 0.0, True),
        (0.1 * GB, 0.026 * GB, True),
        (0.1 * GB, 0.024 * GB, False),  # not a quarter of the link to the origin
    ],
)
def test_auto_takes_nothing_from_a_peer_that_would_be_the_last_to_come(
    hub_bps: float, lan_bps: float, is_pulled: bool
) -> None:
    moving = _moving(hub_bps=hub_bps, lan_bps=lan_bps)
    for is_auto in (True, False):
        node = Node(is_auto=is_auto)
        node.plan.learn(_answer(holders={3: ["a"]}), [], STILL)
        assert (node.pull(moving=moving) is not None) == (is_pulled or not is_auto)


def test_auto_counts_what_peers_are_giving_already_and_never_waits_for_a_much_slower_origin() -> None:
    node = Node(here=(1, 2), is_auto=True)
    node.plan.learn(_answer(holders={3: ["a"], 4: ["a"]}), [], STILL)
    # Files 3, 4, 5: the first in 10 s from a peer or all in 30 s from the origin; then 20 s against 20 s for two.
    even = _moving(hub_bps=0.1 * GB, lan_bps=0.1 * GB)
    first = node.pull(moving=even)
    assert first is not None
    assert node.pull(moving=even._replace(from_peers={first.file.path: 100})) is not None
    node = Node(here=(1, 2), is_auto=True)
    node.plan.learn(_answer(holders={3: ["a"], 4: ["a"]}), [], STILL)
    node.pull(moving=even)
    assert node.pull(moving=even._replace(lan_bps=0.09 * GB)) is None
    assert node.pull(moving=even._replace(hub_bps=0.01 * GB, lan_bps=0.05 * GB)) is not None
