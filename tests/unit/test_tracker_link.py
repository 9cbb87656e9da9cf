"""Reports go to the tracker one at a time, each answer is taken before the next, and the next node steps in."""

import json
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.share_protocol import Me
from k3deploy.remote.tracker_link import Exchange, TrackerLink
from tests.unit.remote_program import until
from tests.unit.scripted_share import ScriptedShare, answer, scripted_share

TOKEN = "only-this-run-knows"
HERE = "127.0.0.1"
WAIT_S = 20.0


@contextmanager
def link(
    folder: Path, nodes: dict[str, str], ports: list[int], last: dict[str, Any] | None = None
) -> Iterator[TrackerLink]:
    """`last`: the report with which it ends."""
    path = folder / "peers.json"
    path.write_text(json.dumps({"run": "r1", "nodes": nodes}))
    made = TrackerLink(PeerList(str(path)), ports, Me(HERE, TOKEN))
    try:
        yield made
    finally:
        made.close(last)


def exchange(link: TrackerLink, **report: Any) -> Exchange:
    """One report and what came of it."""
    link.offer(report, 0.0)
    assert select.select([link], [], [], WAIT_S)[0], "nothing came back"
    (exchange,) = link.take()
    return exchange


def _port(share: ScriptedShare) -> int:
    return int(share.server_address[1])


def test_a_report_goes_out_with_the_token_from_the_nodes_own_address(tmp_path: Path) -> None:
    with scripted_share(lambda _: answer(leases=[4])) as share, link(tmp_path, {"a": HERE}, [_port(share)]) as to:
        seen = exchange(to, node="a", held=[1])
    assert seen.report == {"node": "a", "held": [1]}
    assert seen.answer is not None
    assert seen.answer.leases == [4]
    assert share.reports == [{"node": "a", "held": [1]}]
    assert share.headers[0]["Authorization"] == "Bearer " + TOKEN
    assert share.clients == [HERE]


def test_no_report_is_wanted_until_the_last_answer_was_taken(tmp_path: Path) -> None:
    with scripted_share(lambda _: answer()) as share, link(tmp_path, {"a": HERE}, [_port(share)]) as to:
        assert to.wants_report
        to.offer({"number": 1}, 0.0)
        assert select.select([to], [], [], WAIT_S)[0]
        assert not to.wants_report
        assert len(to.take()) == 1
        assert to.wants_report
        assert select.select([to], [], [], 0)[0] == []


def test_of_reports_that_wait_the_newest_goes_out(tmp_path: Path) -> None:
    with scripted_share(lambda _: answer()) as share, link(tmp_path, {"a": HERE}, [_port(share)]) as to:
        exchange(to, number=1)
        to.offer({"number": 2}, WAIT_S)
        assert exchange(to, number=3).report == {"number": 3}
    assert [report["number"] for report in share.reports] == [1, 3]


def test_news_do_not_wait_for_the_pause_of_a_report_that_comes_later(tmp_path: Path) -> None:
    with scripted_share(lambda _: answer()) as share, link(tmp_path, {"a": HERE}, [_port(share)]) as to:
        exchange(to, number=1)
        to.offer({"number": 2}, 0.5)
        to.offer({"number": 3}, 10 * WAIT_S)
        assert select.select([to], [], [], WAIT_S)[0]
        assert to.take()[0].report["number"] in (2, 3)


def test_a_connection_is_kept_and_made_again_when_it_was_closed(tmp_path: Path) -> None:
    with scripted_share(lambda _: answer()) as share, link(tmp_path, {"a": HERE}, [_port(share)]) as to:
        share.keeps_connections = False
        assert [exchange(to, number=n).answer is not None for n in range(3)] == [True] * 3


def test_another_runs_share_on_the_first_port_is_passed_over(tmp_path: Path) -> None:
    with ExitStack() as stack:
        other = stack.enter_context(scripted_share(lambda _: 409))
        share = stack.enter_context(scripted_share(lambda _: answer()))
        to = stack.enter_context(link(tmp_path, {"a": HERE}, [_port(other), _port(share)]))
        for number in range(3):
            assert exchange(to, number=number).answer is not None
    assert (len(other.reports), len(share.reports)) == (1, 3)


def test_what_makes_no_sense_is_no_answer(tmp_path: Path) -> None:
    with scripted_share(lambda _: {"leases": "all"}) as share, link(tmp_path, {"a": HERE}, [_port(share)]) as to:
        assert exchange(to).answer is None


def test_when_the_tracker_dies_the_next_node_is_asked(tmp_path: Path) -> None:
    nodes = {"a": "127.0.0.2", "b": "127.0.0.3"}
    with ExitStack() as stack:
        second = stack.enter_context(scripted_share(lambda _: answer(leases=[2]), address=nodes["b"]))
        with ExitStack() as first_lives:
            first = first_lives.enter_context(
                scripted_share(lambda _: answer(leases=[1]), address=nodes["a"], port=_port(second))
            )
            to = stack.enter_context(link(tmp_path, nodes, [_port(second)]))
            asked = exchange(to)
            assert asked.answer is not None
            assert (asked.answer.leases, len(second.reports)) == ([1], 0)
            first.keeps_connections = False
            exchange(to)
        asked = exchange(to)
        assert asked.answer is not None
        assert asked.answer.leases == [2]


def test_where_nobody_answers_that_is_the_answer(tmp_path: Path) -> None:
    with scripted_share(lambda _: 500) as share, link(tmp_path, {"a": HERE, "b": HERE}, [_port(share)]) as to:
        assert exchange(to).answer is None
    assert len(share.reports) > 2  # in the first seconds the first node alone was asked, again and again


def test_the_last_report_goes_out_before_the_link_is_closed(tmp_path: Path) -> None:
    with scripted_share(lambda _: answer()) as share:
        with link(tmp_path, {"a": HERE}, [_port(share)], last={"number": 2}) as to:
            exchange(to, number=1)
        until(lambda: len(share.reports) == 2, "it has arrived")
    assert share.reports[-1] == {"number": 2}
