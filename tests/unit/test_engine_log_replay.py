"""Replays, line by line, what a real 32-GPU Kimi K3 start printed, and asserts every number in it.

The excerpts were published by the people who ran it (four nodes of eight H100, 2026-07-28; one server of eight B300).
They are wrapped as they were printed there; an indented line goes on with the one before it.
"""

from datetime import UTC, datetime

import pytest

from k3deploy.domain.launch.capacity import capacity
from k3deploy.domain.launch.stages import Observation, Stage, read_line
from k3deploy.domain.launch.watch import RankLog

CLUSTER_FORMS = """\
[2026-07-28 07:39:14] #words: 163840 - BOS ID: 163584 - EOS ID: 163585
[2026-07-28 07:39:14] Applying special tokens cache patch for Kimi tokenizer
[2026-07-28 07:39:14 TP0 EP0] Init torch distributed begin.
[2026-07-28 07:39:58 TP0 EP0] Init torch distributed ends. elapsed=41.49 s, mem usage=0.47 GB
"""
WEIGHTS_LOAD = """\
[2026-07-28 07:39:58 TP0 EP0] Load weight begin. avail mem=78.23 GB
[2026-07-28 07:39:58 TP0 EP0] FlashInfer TRTLLM MoE deferred finalize is disabled
     (moe_runner_backend=marlin, quant_method=Mxfp4MoEMethod).
[2026-07-28 07:45:16 TP0 EP0] Load weight end. elapsed=317.50 s,
     type=KimiK3ForConditionalGeneration, quant=compressed-tensors,
     avail mem=18.60 GB, mem usage=59.63 GB.
"""
POOLS = """\
[2026-07-28 07:45:18 TP0 EP0] KV Cache is allocated. dtype: torch.bfloat16,
     #tokens: 140352, KV size: 3.62 GB
[2026-07-28 07:45:18 TP0 EP0] Memory pool end. avail mem=11.57 GB
[2026-07-28 07:45:18 TP0 EP0] Using hybrid attention backend for decode and prefill:
     decode_backend=flashmla, prefill_backend=fa3.
"""
SERVER_UP = """\
[2026-07-28 07:49:32 TP0 EP0] max_total_num_tokens=140352, chunked_prefill_size=8192,
     max_prefill_tokens=16384, max_running_requests=49, context_len=1048576,
     available_gpu_mem=10.34 GB
[2026-07-28 07:49:32] INFO:     Application startup complete.
[2026-07-28 07:49:32] INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
[2026-07-28 07:50:15] The server is fired up and ready to roll!
"""
CAP = """\
max_running_requests is capped to 60 by the mamba state cache
(max_mamba_cache_size=303, 5 state slots per request).
"""


def lines_of(excerpt: str) -> list[str]:
    """The lines as the engine printed them, before an article wrapped them."""
    return excerpt.replace("\n     ", " ").splitlines()


def clock(time: str) -> float:
    return datetime.strptime(f"2026-07-28 {time}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("excerpt", "expected"),
    [
        (
            CLUSTER_FORMS,
            [
                ("07:39:14", None, None, {"words": 163840, "bos_id": 163584, "eos_id": 163585}),
                ("07:39:14", None, Stage.TOKENIZER, {}),
                ("07:39:14", 0, Stage.GROUP_FORMING, {}),
                ("07:39:58", 0, Stage.GROUP_FORMED, {"elapsed_s": 41.49, "mem_usage_gib": 0.47}),
            ],
        ),
        (
            WEIGHTS_LOAD,
            [
                ("07:39:58", 0, Stage.LOADING, {"avail_gib": 78.23}),
                ("07:39:58", 0, None, {"moe_runner_backend": "marlin", "quant_method": "Mxfp4MoEMethod"}),
                (
                    "07:45:16",
                    0,
                    Stage.LOADED,
                    {
                        "elapsed_s": 317.50,
                        "type": "KimiK3ForConditionalGeneration",
                        "quant": "compressed-tensors",
                        "avail_gib": 18.60,
                        "mem_usage_gib": 59.63,
                    },
                ),
            ],
        ),
        (
            POOLS,
            [
                ("07:45:18", 0, Stage.KV_POOL, {"dtype": "torch.bfloat16", "kv_tokens": 140352, "kv_gib": 3.62}),
                ("07:45:18", 0, Stage.POOLS_DONE, {"avail_gib": 11.57}),
                ("07:45:18", 0, None, {"decode_backend": "flashmla", "prefill_backend": "fa3"}),
            ],
        ),
        (
            SERVER_UP,
            [
                (
                    "07:49:32",
                    None,  # a line for the whole engine, though worker 0 prints it
                    Stage.SCHEDULER_UP,
                    {
                        "max_total_num_tokens": 140352,
                        "chunked_prefill_size": 8192,
                        "max_prefill_tokens": 16384,
                        "max_running_requests": 49,
                        "context_len": 1048576,
                        "available_gpu_gib": 10.34,
                    },
                ),
                ("07:49:32", None, Stage.HTTP_UP, {}),
                ("07:49:32", None, Stage.HTTP_UP, {"address": "0.0.0.0", "port": 8000}),
                ("07:50:15", None, Stage.READY, {}),
            ],
        ),
    ],
    ids=["cluster forms", "weights load", "pools", "server up"],
)
def test_each_line_gives_its_stage_its_time_and_every_number_in_it(
    excerpt: str, expected: list[tuple[str, int | None, Stage | None, dict[str, object]]]
) -> None:
    seen = [read_line(line) for line in lines_of(excerpt)]
    assert [(o.at, o.tp_rank, o.stage, dict(o.figures)) for o in seen] == [
        (clock(time), rank, stage, figures) for time, rank, stage, figures in expected
    ]
    assert [o.failure for o in seen] == [None] * len(expected)


def test_the_cap_line_gives_requests_slots_and_slots_per_request() -> None:
    line = " ".join(CAP.splitlines())
    seen = read_line(f"[2026-07-20 10:00:00 TP0] {line}")
    assert seen.topic == "cap"
    assert dict(seen.figures) == {
        "max_running_requests": 60,
        "max_mamba_cache_size": 303,
        "state_slots_per_request": 5,
    }
    assert 303 // 5 == 60  # as the authors say: 5 blocks a request, 303 blocks, 60 requests


def whole_start() -> RankLog:
    log = RankLog(started_at=clock("07:39:00"))
    for line in lines_of(CLUSTER_FORMS + WEIGHTS_LOAD + POOLS + SERVER_UP):
        log.feed(line)
    return log


def test_the_whole_start_is_ready_and_knows_when_each_stage_was_reached() -> None:
    log = whole_start()
    assert log.stage is Stage.READY
    assert log.since(Stage.GROUP_FORMED) == clock("07:39:58")
    assert log.since(Stage.LOADED) == clock("07:45:16")
    assert log.since(Stage.POOLS_DONE) == clock("07:45:18")
    assert log.since(Stage.HTTP_UP) == clock("07:49:32")
    assert log.since(Stage.READY) == clock("07:50:15")
    assert log.troubles == []
    # "eleven minutes after the containers started": 07:39:14 to 07:50:15 is 661 s.
    assert clock("07:50:15") - clock("07:39:14") == 661


def test_the_memory_budget_of_a_card_adds_up_as_the_authors_say() -> None:
    log = whole_start()
    before, after = float(log.figures["load_begin"]["avail_gib"]), float(log.figures["loaded"]["avail_gib"])
    weights, pools = float(log.figures["loaded"]["mem_usage_gib"]), float(log.figures["pools"]["avail_gib"])
    free = float(log.figures["scheduler"]["available_gpu_gib"])
    assert before - after == pytest.approx(weights)  # 78.23 - 18.60 = 59.63
    assert after - pools == pytest.approx(7.03)
    assert pools - free == pytest.approx(1.23)  # "about 1.2 for CUDA graph capture"


def test_the_context_is_never_told_without_the_pool() -> None:
    told = capacity(whole_start(), decode_context=1)
    assert (told.context_tokens, told.pool_tokens, told.max_running_requests) == (1048576, 140352, 49)
    assert told.longest_request_tokens == 140352
    assert told.sentence == (
        "context_len 1,048,576 advertised; the KV pool holds one request of at most 140,352 tokens"
    )


def test_a_line_that_says_nothing_gives_nothing() -> None:
    assert read_line("[2026-07-28 07:39:14] INFO: something else") == Observation(at=clock("07:39:14"))
    assert read_line("[2026-99-28 07:39:14] The clock is broken") == Observation()
    assert read_line("") == Observation()
