"""Logs: from the node while it can be reached, else the store's copy; and as stages, as the watcher reads them."""

import gzip

import pytest

from k3deploy.domain.errors import NodeError, UsageError
from k3deploy.domain.launch.stages import Stage
from k3deploy.domain.names import NodeName
from k3deploy.flows import logs
from k3deploy.phases.launch import LaunchPhase
from k3deploy.phases.teardown.export_logs import engine_log_key

from .engine_world import RUN, STARTED_AT, World, run_phase, script_log, world
from .test_ready_phase import start_lines
from .test_teardown import away, session

G1, G2 = NodeName("gpu-01"), NodeName("gpu-02")


def running() -> World:
    w = world()
    run_phase(w, LaunchPhase(w.site))
    return w


def test_the_last_lines_of_every_node_in_order() -> None:
    w = running()
    for at, name in enumerate(w.names):
        script_log(w, str(name), (STARTED_AT, [(STARTED_AT + at, f"word of {name}")]))
    found = logs.read(session(w), w.names, tail=100)
    assert [(log.node, log.source, [line.text for line in log.lines]) for log in found] == [
        (name, "node", [f"word of {name}"]) for name in w.names
    ]
    asked = w.programs("engine_logs")[0][1].args
    assert (asked["follow"], asked["tail"]) == (False, 100)


def kept(w: World, node: NodeName, container: str, text: str) -> str:
    key = engine_log_key(RUN, node, container)
    w.svc.store.put(key, gzip.compress(text.encode()))
    return key


def test_a_node_that_is_away_is_read_from_the_newest_copy_in_the_store() -> None:
    w = running()
    script_log(w, "gpu-01", (STARTED_AT, [(STARTED_AT, "here")]))
    away(w, "gpu-02")
    kept(w, G2, "a" * 64, "1000.000 old\n")
    newest = kept(w, G2, "b" * 64, "2000.000 one\n2001.500 two\n== 9 bytes left out here\n2002.000 three\n")
    here, stored = logs.read(session(w), (G1, G2), tail=3)
    assert here.source == "node"
    assert stored.source == f"store: {newest}"
    assert [(line.at, line.text) for line in stored.lines] == [
        (2001.5, "two"),
        (2001.5, "== 9 bytes left out here"),
        (2002.0, "three"),
    ]


def test_a_node_without_log_anywhere_says_why() -> None:
    w = world()  # nothing was launched
    (found,) = logs.read(session(w), (G1,), tail=10)
    assert found.source == "none"
    assert found.why == "no container of this run is there, and the store keeps no log of it"


def test_following_gives_lines_with_their_node_until_all_have_ended() -> None:
    w = running()
    for name in ("gpu-01", "gpu-02"):
        script_log(
            w, name, (STARTED_AT, [(STARTED_AT, f"{name} one")]), (STARTED_AT, [(STARTED_AT + 1, f"{name} two")])
        )
    heard = [(str(node), line.text) for node, line in logs.follow(session(w), (G1, G2), tail=5)]
    assert sorted(heard) == [
        ("gpu-01", "gpu-01 one"),
        ("gpu-01", "gpu-01 two"),
        ("gpu-02", "gpu-02 one"),
        ("gpu-02", "gpu-02 two"),
    ]


def test_there_is_nothing_to_follow_without_a_container() -> None:
    w = world()
    with pytest.raises(NodeError, match="no container of this run to follow"):
        list(logs.follow(session(w), (G1,), tail=5))


def test_stages_say_how_far_each_rank_is() -> None:
    w = running()
    script_log(w, "gpu-01", (STARTED_AT + 700, start_lines(0, "ready")))
    script_log(w, "gpu-02", (STARTED_AT + 700, start_lines(1, "bar")))
    s = session(w)
    head, follower = logs.stages(s, (G1, G2))
    assert (head.log.stage, follower.log.stage) == (Stage.READY, Stage.LOADING)
    assert follower.standing == "rank 1 on gpu-02: loading weights 43%"
    body = logs.stage_dict(s, head)
    assert (body["stage"], body["replica"], body["node_rank"], body["failure"]) == ("ready", "serve-0", 0, None)
    assert body["capacity"]["longest_request_tokens"] == 140_352
    assert body["stages_s"]["ready"] == 665.5


def test_a_rank_that_ended_says_so_in_its_stage() -> None:
    w = running()
    container = w["gpu-02"].container
    assert container is not None
    container.status, container.exit_code = "exited", 137
    script_log(w, "gpu-02", (STARTED_AT, [*start_lines(1, "begin"), (STARTED_AT + 20, "CUDA out of memory")]))
    s = session(w)
    (rank,) = logs.stages(s, (G2,))
    assert rank.standing == (
        "rank 1 on gpu-02: its container exited with code 137, at stage: joining the process group"
    )
    failure = logs.stage_dict(s, rank)["failure"]
    assert failure is not None
    assert failure["name"] == "out-of-memory"


@pytest.mark.parametrize(
    ("node", "replica", "chosen"),
    [
        (None, None, ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]),
        ("gpu-02", None, ["gpu-02"]),
        (None, "serve-0", ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]),
    ],
)
def test_which_nodes_are_meant(node: str | None, replica: str | None, chosen: list[str]) -> None:
    assert list(logs.chosen(session(world()), node=node, replica=replica)) == chosen


@pytest.mark.parametrize(
    ("node", "replica", "what", "fix"),
    [
        ("gpu-9", None, "no node of this run is called 'gpu-9'", "use one of: gpu-01, gpu-02, gpu-03, gpu-04"),
        (None, "serve-9", "no replica of this run is called 'serve-9'", "use one of: serve-0"),
    ],
)
def test_a_name_that_does_not_exist_is_told_with_those_that_do(
    node: str | None, replica: str | None, what: str, fix: str
) -> None:
    with pytest.raises(UsageError) as caught:
        logs.chosen(session(world()), node=node, replica=replica)
    assert (caught.value.what, caught.value.fix) == (what, fix)
