"""The weights on their way as people see them: on a screen, in a log, and what the figures are made of."""

import io
from collections.abc import Mapping

import pytest

from k3deploy.cli.console import LiveConsole, PlainConsole
from k3deploy.domain import events as ev
from k3deploy.domain.fetch_view import block
from k3deploy.domain.pace import Pace
from k3deploy.domain.run_state import RunState, apply, fold
from k3deploy.domain.units import countdown_text, part_text, rate_text

TB, GB = 1e12, 1e9
ONE = "7.0 GB/s  41/96 shards  hub 24 % peers 76 %  ETA 4:10"
TWO = "5.0 GB/s  9/96 shards   hub 100 %            ETA 6:20"
TOTAL = "3.1 GB/s from the Hub, 8.9 GB/s from peers, 1.2 of 6.2 TB, ETA 6:20; bound 8:08, at this rate 1.06x"
# 0.8 TB of 3.1 TB are 25.8 %; 2.0 and 5.0 GB/s are 7.0; 192 of 800 GB from the Hub are 24 %; 250 s are 4:10.
FIRST = {
    "shards_done": 41,
    "shards_total": 96,
    "hub_bytes": 192 * GB,
    "peer_bytes": 608 * GB,
    "hub_bps": 2.0 * GB,
    "peer_bps": 5.0 * GB,
    "eta_s": 250,
    "bound_s": 488,
    "elapsed_s": 137,
}
# The slower node: 380 s are 6:20, and 137 + 380 s are 1.06 times the bound of 488 s, which is 8:08.
SECOND = {
    **FIRST,
    "shards_done": 9,
    "hub_bytes": 400 * GB,
    "peer_bytes": 0,
    "hub_bps": 1.1 * GB,
    "peer_bps": 3.9 * GB,
    "eta_s": 380,
}


def begun(phase: str, *nodes: str, at: float = 0.0) -> list[ev.Event]:
    events: list[ev.Event] = [ev.RunStarted(at=at, run_id="r", flow="up", profile="p", nodes=nodes)]
    for node in nodes:
        events.append(ev.PhaseStarted(at=at, phase=phase, target=node, title="T"))
        events.append(ev.StepStarted(at=at, phase=phase, target=node, step="go"))
    return events


def said(
    node: str,
    done: float,
    total: float,
    *,
    at: float = 1.0,
    phase: str = "weights-fetch",
    message: str = "fetching weights",
    numbers: Mapping[str, float] | None = None,
) -> ev.Progressed:
    return ev.Progressed(
        at=at, phase=phase, target=node, message=message, done=done, total=total, numbers=numbers or {}
    )


def two_nodes() -> RunState:
    return fold(
        [
            *begun("weights-fetch", "gpu-01", "gpu-02"),
            said("gpu-01", 0.8 * TB, 3.1 * TB, numbers=FIRST),
            said("gpu-02", 0.4 * TB, 3.1 * TB, numbers=SECOND),
        ]
    )


def lines(state: RunState, width: int) -> list[str]:
    return block(state.units.values(), width)


def test_a_wide_screen_has_everything() -> None:
    assert lines(two_nodes(), 120) == [
        f"  all nodes  {TOTAL}",
        f"  gpu-01     weights-fetch   #####                 25 %  {ONE}",
        f"  gpu-02     weights-fetch   ###                   12 %  {TWO}",
    ]


def test_a_wider_screen_names_the_phase_of_the_total_too() -> None:
    assert lines(two_nodes(), 140)[0] == f"  all nodes  weights-fetch   {TOTAL}"


def test_what_stays_together_goes_to_the_next_line_together() -> None:
    more = {"hub_bound_s": 1951}
    state = fold(
        [
            *begun("weights-fetch", "gpu-01", "gpu-02"),
            said("gpu-01", 0.8 * TB, 3.1 * TB, numbers={**FIRST, **more}),
            said("gpu-02", 0.4 * TB, 3.1 * TB, numbers={**SECOND, **more}),
        ]
    )
    assert lines(state, 120)[:2] == [
        "  all nodes  3.1 GB/s from the Hub, 8.9 GB/s from peers, 1.2 of 6.2 TB, ETA 6:20;",
        "             bound 8:08 (each by itself 32:31), at this rate 1.06x",
    ]


def test_a_narrow_screen_loses_no_figure() -> None:
    assert lines(two_nodes(), 80) == [
        "  all nodes  3.1 GB/s from the Hub, 8.9 GB/s from peers, 1.2 of 6.2 TB,",
        "             ETA 6:20; bound 8:08, at this rate 1.06x",
        f"  gpu-01     ##      25 %  {ONE}",
        f"  gpu-02     #       12 %  {TWO}",
    ]
    assert lines(two_nodes(), 70)[-1] == f"  gpu-02      12 %  {TWO}"


def test_hashing_is_paced_by_its_count() -> None:
    """120 GB in 10 s are 12.0 GB/s; of 1560 GB, 1440 are left for 120 s. The other node has said one word only."""
    state = fold(
        [
            *begun("weights-verify", "gpu-01", "gpu-02"),
            said("gpu-01", 0, 1560 * GB, phase="weights-verify"),
            said("gpu-01", 120 * GB, 1560 * GB, at=11.0, phase="weights-verify"),
            said("gpu-02", 0, 1560 * GB, at=11.0, phase="weights-verify"),
        ]
    )
    assert lines(state, 80) == [
        "  all nodes  weights-verify  0.1 of 3.1 TB",
        "  gpu-01     weights-verify  #                  7 %  12.0 GB/s  hashed  ETA 2:00",
        "  gpu-02     weights-verify                     0 %             hashed",
    ]


def test_the_total_counts_who_is_done_and_waits_for_the_last() -> None:
    state = two_nodes()
    apply(
        state,
        ev.Verified(at=9.0, phase="weights-fetch", target="gpu-01", summary="", has_changed=True, duration_s=8.0),
    )
    assert lines(state, 120)[0].startswith(
        "  all nodes  1.1 GB/s from the Hub, 3.9 GB/s from peers, 3.5 of 6.2 TB, ETA 6:20;"
    )


def test_a_step_that_is_over_is_at_work_no_more() -> None:
    state = two_nodes()
    apply(state, ev.StepFinished(at=9.0, phase="weights-fetch", target="gpu-01", step="go", duration_s=8.0))
    assert "3.5 of 6.2 TB" in lines(state, 120)[0]
    assert [line.split()[0] for line in lines(state, 120)[1:]] == ["gpu-02"]
    apply(state, ev.StepFinished(at=9.0, phase="weights-fetch", target="gpu-02", step="go", duration_s=8.0))
    assert lines(state, 120) == []


def test_a_node_that_failed_counts_with_what_it_got() -> None:
    state = two_nodes()
    apply(state, ev.TargetFailed(at=9.0, phase="weights-fetch", target="gpu-01", error={"what": "x"}, duration_s=8.0))
    assert "1.2 of 6.2 TB, ETA 6:20" in lines(state, 120)[0]


def test_the_bound_stands_beside_what_each_node_would_need_by_itself() -> None:
    plain = {"hub_bytes": 400 * GB, "peer_bytes": 0, "hub_bps": 0.8 * GB, "bound_s": 488, "hub_bound_s": 1951}
    state = fold([*begun("weights-fetch", "gpu-01"), said("gpu-01", 400 * GB, 1560 * GB, numbers=plain)])
    # 1160 GB at 0.8 GB/s are 1450 s.
    total = "  all nodes  800.0 MB/s from the Hub, 0.4 of 1.6 TB, ETA 24:10; bound 8:08 (each by itself 32:31)"
    assert lines(state, 110)[0] == total


def test_one_node_without_a_bound_needs_no_total() -> None:
    state = fold([*begun("weights-verify", "gpu-01"), said("gpu-01", 1, 10, phase="weights-verify")])
    assert [line.split()[0] for line in lines(state, 80)] == ["gpu-01"]


def test_units_that_count_no_weights_are_left_to_others() -> None:
    assert lines(fold([*begun("image", "gpu-01"), said("gpu-01", 1, 2, phase="image")]), 80) == []
    assert lines(fold(begun("weights-fetch", "gpu-01")), 80) == []


def test_a_log_has_a_line_for_each_node_and_for_all_in_ten_seconds() -> None:
    written: list[str] = []
    console = PlainConsole(written.append)
    for event in begun("weights-fetch", "gpu-01", "gpu-02", at=100.0):
        console.emit(event)
    del written[:]
    for second in range(1, 23):
        console.emit(said("gpu-01", 0.8 * TB, 3.1 * TB, at=100.0 + second, numbers=FIRST))
        console.emit(said("gpu-02", 0.4 * TB, 3.1 * TB, at=100.0 + second, numbers=SECOND))
    one = "gpu-01     weights-fetch   fetching weights: 25 %, 7.0 GB/s, 41/96 shards, hub 24 % peers 76 %, ETA 4:10"
    two = "gpu-02     weights-fetch   fetching weights: 12 %, 5.0 GB/s, 9/96 shards, hub 100 %, ETA 6:20"
    all_of_them = f"all nodes  weights-fetch   {TOTAL}"
    assert written == [
        f"00:01  {one}",
        f"00:01  {two}",
        f"00:11  {one}",
        f"00:11  {all_of_them}",
        f"00:11  {two}",
        f"00:21  {one}",
        f"00:21  {all_of_them}",
        f"00:21  {two}",
    ]


def test_a_remark_is_told_at_once_and_scrolls_by_above_the_screens_block() -> None:
    words = "fetching weights (a.safetensors: no byte for 120 s, taken up again without Xet)"
    events = [
        *begun("weights-fetch", "gpu-01", at=100.0),
        said("gpu-01", 10, 100, at=101.0),
        said("gpu-01", 11, 100, at=102.0, message=words),
        said("gpu-01", 12, 100, at=103.0, message=words),
    ]
    written: list[str] = []
    plain, stream = PlainConsole(written.append), io.StringIO()
    live = LiveConsole(stream)
    for event in events:
        plain.emit(event)
        live.emit(event)
    live.close()
    # 2 bytes in 2 s; 88 are left when the third word comes, which is no news.
    assert written[2:] == [
        "00:01  gpu-01     weights-fetch   fetching weights: 10 %",
        f"00:02  gpu-01     weights-fetch   {words}: 11 %",
    ]
    assert [line for line in stream.getvalue().splitlines() if words in line] == [
        f"00:02  gpu-01     weights-fetch   {words}"
    ]


def test_a_rate_is_that_of_the_last_seconds() -> None:
    pace = Pace()
    for second in range(60):
        pace = pace.then(float(second), 10.0 * second if second < 40 else 400.0 + 5.0 * (second - 40))
    assert pace.per_s == 5.0
    assert len(pace.samples) == 16


def test_a_rate_needs_two_words_some_time_apart_and_the_same_beginning() -> None:
    assert Pace().per_s is None
    assert Pace().then(1.0, 5.0).then(2.0, 9.0).per_s is None
    assert Pace().then(1.0, 5.0).then(3.0, 9.0).per_s == 2.0
    assert Pace().then(1.0, 5.0).then(3.0, 4.0).per_s is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (rate_text(12.34e9), "12.3 GB/s"),
        (rate_text(999), "999.0 B/s"),
        (part_text(1.2e12, 6.24e12), "1.2 of 6.2 TB"),
        (part_text(5e5, 9.49e6), "0.5 of 9.5 MB"),
        (countdown_text(250), "4:10"),
        (countdown_text(6.6), "0:07"),
        (countdown_text(612), "10:12"),
        (countdown_text(3787), "1:03:07"),
    ],
)
def test_numbers_as_people_read_them(text: str, wanted: str) -> None:
    assert text == wanted
