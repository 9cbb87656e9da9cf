"""The engine's log, whatever it holds: pieces don't matter, nothing is raised, times are in order, memory is finite."""

from hypothesis import given
from hypothesis import strategies as st

from k3deploy.domain.launch.stages import Stage, read_line
from k3deploy.domain.launch.watch import TAIL_LINES, RankLog
from k3deploy.remote.container_log import LogDecoder
from k3deploy.remote.logs_export import Kept

STAMP = "2026-11-30T12:00:02.5Z "
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)
messages = st.lists(st.tuples(st.sampled_from([1, 2]), texts, st.sampled_from(["\n", "\r", "\r\n"])), max_size=12)


def frames(said: list[tuple[int, str, str]]) -> bytes:
    data = b""
    for stream, text, end in said:
        body = (STAMP + text + end).encode()
        data += bytes([stream, 0, 0, 0]) + len(body).to_bytes(4, "big") + body
    return data


@given(messages, st.lists(st.integers(0, 2000), max_size=6))
def test_a_log_may_arrive_in_any_pieces(said: list[tuple[int, str, str]], cuts: list[int]) -> None:
    data = frames(said)
    whole = LogDecoder(is_framed=True)
    expected = [*whole.feed(data), *whole.end()]
    pieces, found, at = LogDecoder(is_framed=True), [], 0
    for cut in sorted(min(cut, len(data)) for cut in cuts):
        found += pieces.feed(data[at:cut])
        at = cut
    found += [*pieces.feed(data[at:]), *pieces.end()]
    assert found == expected


@given(messages)
def test_no_line_is_lost_and_none_is_made_up(said: list[tuple[int, str, str]]) -> None:
    decoder = LogDecoder(is_framed=True)
    lines = [*decoder.feed(frames(said)), *decoder.end()]
    assert len(lines) == sum(bool(text.strip()) for _, text, _ in said)


@given(st.text(max_size=200))
def test_no_line_breaks_the_watcher(line: str) -> None:
    seen = read_line(line)
    assert seen.fraction is None or 0 <= seen.fraction < 10


STAGE_LINES = [
    "Init parallel begin.",
    "Init parallel ends. elapsed=1.0 s",
    "Load weight begin. avail mem=78.23 GB",
    "Memory pool end. avail mem=11.57 GB",
    "Capture target decode CUDA graph end. bs=[1]",
    "The server is fired up and ready to roll!",
    "nothing",
]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(STAGE_LINES)), max_size=40))
def test_stages_are_reached_in_order_and_none_beyond_where_the_node_is(lines: list[tuple[int, str]]) -> None:
    """A worker that was silent so far may hold the node back: then what the others reached alone does not count."""
    log = RankLog(started_at=0.0)
    for at, (tp_rank, text) in enumerate(lines, start=1):
        log.feed(f"[2026-11-30 12:00:00 TP{tp_rank} EP0] {text}", float(at))
        passed = sorted(log.reached)
        assert all(stage <= log.stage for stage in passed)
        times = [log.reached[stage] for stage in passed]
        assert times == sorted(times)
        assert (log.since(Stage.READY) is not None) == (log.stage is Stage.READY)
    assert len(log.tail) <= TAIL_LINES


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30), max_size=60))
def test_of_a_long_text_at_most_the_limits_and_one_line_are_kept(lines: list[str]) -> None:
    kept = Kept(100, 100)
    for line in lines:
        kept.add(line)
    rows = kept.text().split("\n")[:-1]
    left_out = [row for row in rows if row.startswith("== ") and row.endswith("left out here")]
    shown = [row for row in rows if row not in left_out]
    total = sum(len(line.encode()) + 1 for line in lines)
    assert sum(len(row.encode()) + 1 for row in shown) + kept.left_out_bytes == total
    assert sum(len(row.encode()) + 1 for row in shown) <= 100 + 100 + 121
    if lines:
        assert shown[-1] == lines[-1]
