"""The watcher beyond the published excerpts: newer wordings, many workers, progress bars, failures, striped pools."""

import pytest

from k3deploy.domain.launch.capacity import capacity
from k3deploy.domain.launch.failures import FAILURES, Weight, find_failure
from k3deploy.domain.launch.stages import Stage, read_line
from k3deploy.domain.launch.watch import TAIL_LINES, RankLog


def fed(*lines: str) -> RankLog:
    """A log whose n-th line came n seconds after the container started at 100."""
    log = RankLog(started_at=100.0)
    for number, line in enumerate(lines, start=1):
        log.feed(line, 100.0 + number)
    return log


@pytest.mark.parametrize(
    ("line", "stage", "figures"),
    [
        ("Init parallel begin.", Stage.GROUP_FORMING, {}),
        ("Init parallel ends. elapsed=7.25 s", Stage.GROUP_FORMED, {"elapsed_s": 7.25}),
        ("Gated launch waiting for activation. rank=3", Stage.GATE, {}),
        (
            "Mamba Cache is allocated. max_mamba_cache_size: 245, conv_state size: 0.05GB, ssm_state size: 3.31GB ",
            Stage.STATE_POOL,
            {"max_mamba_cache_size": 245},
        ),
        (
            "KV Cache VA upper bound. dtype: torch.float8_e4m3fn, #tokens: 280704, KV size: 3.62 GB",
            Stage.KV_POOL,
            {"dtype": "torch.float8_e4m3fn", "kv_tokens": 280704, "kv_gib": 3.62},
        ),
        (
            "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=11.57 GB",
            Stage.GRAPHS,
            {"avail_gib": 11.57},
        ),
        (
            "Capture target verify CUDA graph end. bs=[1, 2], elapsed=74.00 s, mem usage=1.23 GB, avail mem=10.34 GB.",
            Stage.GRAPHS_DONE,
            {"elapsed_s": 74.0, "mem_usage_gib": 1.23, "avail_gib": 10.34},
        ),
        ("Capture cuda graph begin. This can take up to several minutes.", Stage.GRAPHS, {}),
    ],
)
def test_wordings_of_newer_and_older_builds(line: str, stage: Stage, figures: dict[str, object]) -> None:
    seen = read_line(f"[2026-11-03 10:00:00 TP5 EP5] {line}")
    assert (seen.stage, seen.tp_rank, dict(seen.figures)) == (stage, 5, figures)


def test_the_draft_cap_gives_its_number() -> None:
    seen = read_line("[2026-11-03 10:00:00] Max running requests is reset to 48 for speculative decoding")
    assert dict(seen.figures) == {"max_running_requests": 48}


def test_a_node_is_as_far_as_its_slowest_worker() -> None:
    log = fed(
        "[2026-11-03 10:00:01 TP8 EP8] Init parallel begin.",
        "[2026-11-03 10:00:02 TP9 EP9] Init parallel begin.",
        "[2026-11-03 10:00:03 TP8 EP8] Load weight begin. avail mem=78.23 GB",
    )
    assert (log.stage, log.since(Stage.LOADING)) == (Stage.GROUP_FORMING, None)
    log.feed("[2026-11-03 10:00:04 TP9 EP9] Load weight begin. avail mem=78.23 GB", 104.0)
    assert (log.stage, log.since(Stage.LOADING)) == (Stage.LOADING, 104.0)


def test_the_main_process_speaks_for_the_node_when_it_is_ahead() -> None:
    log = fed(
        "[2026-11-03 10:00:01 TP0 EP0] Memory pool end. avail mem=11.57 GB",
        "[2026-11-03 10:00:02] The server is fired up and ready to roll!",
    )
    assert log.stage is Stage.READY
    assert log.since(Stage.GRAPHS) == 102.0  # never printed, and passed all the same


def test_a_silent_rank_is_told_from_one_that_waits_for_others() -> None:
    assert fed().is_silent
    assert fed("[2026-11-03 10:00:01] Applying special tokens cache patch for Kimi tokenizer").is_silent
    assert not fed("[2026-11-03 10:00:01 TP0] Init parallel begin.").is_silent


@pytest.mark.parametrize(
    ("bar", "fraction"),
    [
        ("Loading safetensors checkpoint shards:  43% Completed | 41/96 [01:23<01:51, 2.02s/it]", 0.43),
        ("Multi-thread loading shards: 100% Completed | 96/96 [05:17<00:00, 3.31s/it]", 1.0),
        ("[2026-11-03 10:00:01 TP0] prefetching checkpoint files: 7%", 0.07),
    ],
)
def test_progress_bars_give_a_fraction_and_are_not_kept_as_lines(bar: str, fraction: float) -> None:
    log = fed(bar)
    assert log.fraction == fraction
    assert list(log.tail) == []


def test_the_line_that_lists_every_option_reaches_no_stage() -> None:
    log = fed("[2026-11-03 10:00:01] server_args=ServerArgs(moe_runner_backend='marlin', watchdog_timeout=300)")
    assert log.figures == {}
    assert log.stage is Stage.STARTED


def test_only_the_last_lines_are_kept() -> None:
    log = fed(*(f"line {number}" for number in range(200)))
    assert len(log.tail) == TAIL_LINES == 50
    assert log.tail[-1] == "line 199"


@pytest.mark.parametrize(
    ("line", "name", "weight"),
    [
        ("The memory capacity is unbalanced. Some GPUs may be occupied by other processes.", "memory-unbalanced", 0),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB.", "out-of-memory", 3),
        ("RuntimeError: CUDA out of memory", "out-of-memory", 3),
        (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7",
            "weights-leave-no-kv",
            3,
        ),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "no-kv-pool", 3),
        (
            "ValueError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache (x)",
            "no-state-pool",
            3,
        ),
        ("ValueError: the state cache is too small to serve any requests", "state-pool-too-small", 3),
        ("Exception: Capture cuda graph failed: CUDA error", "graph-capture", 3),
        ("RuntimeError: NCCL error: remote process exited", "nccl", 2),
        ("[rank0]:[E] Watchdog caught collective operation timeout: Timeout(ms)=600000", "collective-timeout", 2),
        ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "forward-step-stuck", 3),
        (
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
            "detokenizer-silent",
            1,
        ),
        ("Scheduler hit an exception: Traceback (most recent call last):", "scheduler-exception", 1),
        ("DataParallelController hit an exception: Traceback", "controller-exception", 1),
        ("RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit", "killed", 3),
        ("RuntimeError: Rank 0 scheduler died during initialization (exit code: 1). If exit", "scheduler-died", 1),
        ("Subprocess scheduler_3 (pid=77) crashed with exit code -9. Triggering", "subprocess-crashed", 1),
        ("Received sigquit from a child process. It usually means the child failed.", "sigquit", 1),
        ("Initialization failed. warmup error: timed out", "warm-up", 1),
        ("ERROR: [Errno 98] error while attempting to bind: address already in use", "port-taken", 3),
        ("OSError: Port is already in use.", "port-taken", 3),
        ("port 8000 is in use. Waiting for 3 seconds", "port-waiting", 0),
        ("The NVIDIA driver on your system is too old (found version 12080).", "driver-too-old", 3),
        ("nvidia-container-cli: requirements not met: cuda>=13.0", "cuda-requirement", 3),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0", "cuda-requirement", 3),
        ("CUDA_ERROR_ILLEGAL_ADDRESS in mega_moe_kernel", "mega-moe-domain", 3),
        ("AssertionError: mega MoE: num_tokens=16384 exceeds 8192", "mega-moe-cap", 3),
        ("RuntimeError: Page size mismatch: prefill server has 64", "page-size", 3),
        ("RuntimeError: KV cache dtype mismatch: prefill server has bf16", "kv-dtype", 3),
        ("RuntimeError: Decode pp size (4) should be equal to prefill or 1", "pipeline-size", 3),
        ("mlx5dv_reg_dmabuf_mr failed with errno 524", "dmabuf", 3),
        ("NCCL WARN Error while creating shared memory segment nccl-x : No space left on device", "shared-memory", 3),
    ],
)
def test_each_failure_line_is_known_by_what_it_means(line: str, name: str, weight: int) -> None:
    failure = find_failure(line)
    assert failure is not None
    assert (failure.name, int(failure.weight)) == (name, weight)


def test_every_failure_says_what_it_means_and_what_to_do() -> None:
    for failure in FAILURES:
        assert len(failure.meaning) > 20, failure.name
        assert len(failure.fix) > 20, failure.name
        assert failure.texts, failure.name
        assert all(failure.texts), failure.name


def test_a_full_shared_memory_is_never_blamed_on_a_disk() -> None:
    failure = find_failure("NCCL WARN Error while creating shared memory segment x : No space left on device")
    assert failure is not None
    assert "/dev/shm" in failure.fix
    assert "prune" not in failure.fix


def test_the_cause_is_the_line_that_says_most_not_the_first_one() -> None:
    log = fed(
        "[2026-11-03 10:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "scheduler.py", line 6359, in run_scheduler_process',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB.",
        "[2026-11-03 10:00:02] Received sigquit from a child process. It usually means the child failed.",
    )
    cause = log.cause
    assert cause is not None
    assert cause.failure.name == "out-of-memory"
    assert log.failed_at == 101.0
    assert log.exception == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB."


def test_a_warning_is_no_failure_until_it_is_raised() -> None:
    text = "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. local=78.2"
    warned = fed(f"[2026-11-03 10:00:01 TP0] {text}")
    assert warned.failed_at is None
    raised = fed(f"RuntimeError: {text}")
    assert raised.failed_at == 101.0
    assert raised.cause is not None
    assert raised.cause.weight is Weight.CAUSE


def test_an_exception_nobody_listed_is_kept_for_the_report() -> None:
    log = fed("[2026-11-03 10:00:01 TP0] Scheduler hit an exception: Traceback", "AssertionError: 96 % 40 != 0")
    assert log.exception == "AssertionError: 96 % 40 != 0"


def pool_log(tokens: int, kv_gib: float, dtype: str = "torch.bfloat16") -> RankLog:
    return fed(
        f"[2026-11-03 10:00:01 TP0] KV Cache is allocated. dtype: {dtype}, #tokens: {tokens}, KV size: {kv_gib} GB",
        f"[2026-11-03 10:00:02 TP0] max_total_num_tokens={tokens}, max_running_requests=53, context_len=1048576, "
        "available_gpu_mem=20.00 GB",
    )


def test_a_striped_pool_that_the_log_counts_per_gpu_is_multiplied() -> None:
    # Published: 601,664 tokens and 15.5 GB a GPU, decode context 8: "the node holds 4.81 million tokens".
    told = capacity(pool_log(601_664, 15.5), decode_context=8)
    assert told.pool_tokens == 4_813_312
    assert told.longest_request_tokens == 1_048_576  # the pool holds more than the model takes


def test_a_striped_pool_that_the_log_counts_whole_is_left_alone() -> None:
    # Published: 936,448 tokens for a replica of 8 GPUs, 3.0 GiB a GPU.
    assert capacity(pool_log(936_448, 3.0), decode_context=8).longest_request_tokens == 936_448


def test_attention_groups_do_not_add_up_for_one_request() -> None:
    assert capacity(pool_log(140_352, 3.62), decode_context=1).longest_request_tokens == 140_352


def test_a_pool_in_one_byte_types_is_recognised() -> None:
    # 280,704 tokens x 13,824 B = 3.61 GiB: one GPU's tokens.
    log = pool_log(280_704, 3.62, "torch.float8_e4m3fn")
    assert capacity(log, decode_context=4).pool_tokens == 1_122_816


def test_a_pool_sized_again_after_the_graphs_counts_as_it_is_at_last() -> None:
    log = fed(
        "[2026-11-03 10:00:01 TP0] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 200000, KV size: 5.1 GB",
        "[2026-11-03 10:00:02 TP0] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, "
        "#tokens: 140352, KV size: 3.62 GB, avail mem=10.34 GB",
    )
    assert capacity(log, decode_context=1).pool_tokens == 140_352


def test_a_log_without_figures_promises_nothing() -> None:
    told = capacity(fed(), decode_context=1)
    assert told.longest_request_tokens is None
    assert told.sentence == "the engine's log does not say how many tokens its KV pool holds"
