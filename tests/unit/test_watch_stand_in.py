"""The watcher on what the stand-in engine prints, as real processes: healthy in both wordings, and failing.

The watcher is true to the published logs by its own replay tests; here it meets whole logs of many workers.
"""

import json
import re
from pathlib import Path

import pytest

from k3deploy.domain.launch.capacity import capacity
from k3deploy.domain.launch.replica_watch import RankEnd, RankWatch, explain, first_failed
from k3deploy.domain.launch.stages import Stage
from k3deploy.domain.launch.watch import RankLog
from k3deploy.domain.names import NodeName
from tests.lab import checkpoint
from tests.lab.engine_process import EngineProcess, engine_group, lay_out_cache

READY = "The server is fired up and ready to roll!"
FOLLOWING = "Dummy health check server started in background thread at"
H100 = [
    *("--tp-size", "32", "--ep-size", "32", "--mem-fraction-static", "0.85", "--dist-timeout", "3600"),
    *("--moe-runner-backend", "marlin", "--decode-attention-backend", "flashmla"),
]


@pytest.fixture(scope="module")
def hub_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    checkpoint.build(root, "small12")
    return root


@pytest.fixture
def hf_home(tmp_path: Path, hub_root: Path) -> Path:
    home = tmp_path / "hf"
    lay_out_cache(home, hub_root)
    return home


def watched(engine: EngineProcess) -> RankLog:
    """Its log, split into lines as the program on a node does."""
    log = RankLog(started_at=0.0)
    for line in re.split(r"[\r\n]+", engine.log()):
        log.feed(line)
    return log


def test_a_healthy_start_of_four_nodes_gives_the_published_figures(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 4, H100, LAB_ENGINE_VERSION="0.5.18") as engines:
        engines[0].wait_for(READY)
        for engine in engines[1:]:
            engine.wait_for(FOLLOWING)
        head, *followers = [watched(engine) for engine in engines]
    assert head.stage is Stage.READY
    assert [log.stage for log in followers] == [Stage.GRAPHS_DONE] * 3
    for log in (head, *followers):
        assert log.troubles == []
        assert log.figure("loaded", "mem_usage_gib") == 59.63
        assert log.figure("kv_pool", "kv_tokens") == 140_352
    assert head.fraction == 1.0
    told = capacity(head, decode_context=1)
    assert (told.longest_request_tokens, told.max_running_requests) == (140_352, 49)


def test_the_newer_wording_with_a_cap_is_understood(tmp_path: Path, hf_home: Path) -> None:
    (hf_home / "lab-engine.json").write_text(json.dumps({"capped": {"requests": 60, "slots": 303, "per_request": 5}}))
    with engine_group(hf_home, tmp_path, 2, LAB_ENGINE_VERSION="0.5.23") as engines:
        engines[0].wait_for(READY)
        engines[1].wait_for(FOLLOWING)
        head, follower = watched(engines[0]), watched(engines[1])
    assert (head.stage, follower.stage) == (Stage.READY, Stage.GRAPHS_DONE)
    assert dict(capacity(head, decode_context=1).cap) == {
        "max_running_requests": 60,
        "max_mamba_cache_size": 303,
        "state_slots_per_request": 5,
    }


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"oom_at": "load"}, "out-of-memory"),
        ({"kill_at": "load"}, "killed"),
    ],
)
def test_the_rank_that_failed_is_told_from_the_one_that_lost_it(
    told: dict[str, str], name: str, tmp_path: Path, hf_home: Path
) -> None:
    (hf_home / "lab-engine.json").write_text(json.dumps({**told, "node_ranks": [1]}))
    with engine_group(hf_home, tmp_path, 2) as engines:
        for engine in engines:
            engine.wait_for_end()
        ranks = []
        for node_rank, engine in enumerate(engines):
            end = RankEnd("exited", 1, oom_killed=False, error="", at=1e12)
            ranks.append(RankWatch(NodeName(f"gpu-0{node_rank}"), node_rank, watched(engine), 1e12, end))
    first = first_failed(ranks)
    assert first is ranks[1]
    assert first.log.cause is not None
    assert first.log.cause.failure.name == name
    assert first.log.cause.failure.meaning in explain(first)[0]


def test_a_rank_that_waits_for_a_missing_one_is_joining(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 2, node_ranks=(0,)) as engines:
        assert watched(engines[0]).stage is Stage.GROUP_FORMING
