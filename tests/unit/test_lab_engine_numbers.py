"""The figures that the stand-in engine reports against measured runs and the published memory formulas."""

import pytest

from tests.lab.engine.launch import Launch, resolve
from tests.lab.engine.numbers import Numbers, figures, slots_per_request, state_bytes
from tests.lab.engine.options import parse

MIB = 1 << 20
H100 = "--tp-size 32 --ep-size 32 --nnodes 4 --moe-runner-backend marlin --mem-fraction-static 0.85"


def launch(options: str) -> Launch:
    return resolve(parse(["--model-path", "m", *options.split()], "0.5.23"), "0.5.23")


def numbers(options: str, gpu: str | None = None) -> Numbers:
    return figures(launch(options), gpu)


def test_four_nodes_of_h100_as_measured() -> None:
    found = numbers(H100)
    assert found.gpu == "H100"
    assert (found.before_load_gib, found.after_load_gib, found.weights_gib) == (78.23, 18.60, 59.63)
    assert (found.kv_tokens, found.kv_gib, found.max_running) == (140_352, 3.62, 49)
    assert (found.after_pools_gib, found.after_graphs_gib) == (11.57, 10.34)
    assert (found.used_mib, found.used_mib + found.head_extra_mib) == (70_960, 71_790)


def test_the_formula_meets_the_measurement() -> None:
    """The published formula gives 140,331 tokens and 49 requests for the same run; pages hold 64 tokens."""
    found = numbers(f"{H100} --mamba-full-memory-ratio 0.9000001")
    assert found.kv_tokens == 140_331 // 64 * 64
    assert found.max_running == 49


def test_one_server_of_b300_as_measured() -> None:
    low_latency = numbers("--tp-size 8 --mem-fraction-static 0.85 --mamba-full-memory-ratio 1.1")
    assert (low_latency.state_slots, low_latency.slots_per_request, low_latency.max_running) == (303, 5, 60)
    assert low_latency.kv_tokens == 561_728
    assert low_latency.is_capped_by_state
    balanced = numbers("--tp-size 8 --dcp-size 8 --mem-fraction-static 0.85 --mamba-full-memory-ratio 8.82")
    assert (balanced.max_running, balanced.kv_tokens) == (101, 936_448)


@pytest.mark.parametrize(("tp", "mib"), [(8, 53.6), (16, 26.8), (32, 13.4)])
def test_state_of_one_request(tp: int, mib: float) -> None:
    assert sum(state_bytes(launch(f"--tp-size {tp}"))) / MIB == pytest.approx(mib, abs=0.05)


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        ("", 5),
        ("--mamba-radix-cache-strategy extra_buffer", 5),
        ("--mamba-radix-cache-strategy extra_buffer_lazy", 4),
        ("--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule", 3),
        ("--pp-size 2", 4),
        ("--disable-radix-cache", 1),
        ("--disaggregation-mode decode", 1),
    ],
)
def test_slots_of_one_request(options: str, slots: int) -> None:
    assert slots_per_request(launch(options)) == slots


def test_a_slot_less_when_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "1")
    assert slots_per_request(launch("")) == 4
    assert slots_per_request(launch("--mamba-radix-cache-strategy no_buffer")) == 3


@pytest.mark.parametrize(
    ("gpu", "options"),
    [("B200", "--tp-size 8"), ("H200", "--tp-size 8"), ("H100", "--tp-size 8"), ("GB300", "--tp-size 4")],
)
def test_weights_that_do_not_fit(gpu: str, options: str) -> None:
    found = numbers(options, gpu)
    assert found.load_problem is not None
    assert "CUDA out of memory" in found.load_problem


def test_weights_that_leave_no_room_for_pools() -> None:
    found = numbers("--tp-size 8 --mem-fraction-static 0.70", "NVIDIA B300 SXM6 AC")
    assert found.pool_problem is not None
    assert "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7" in found.pool_problem


@pytest.mark.parametrize(
    ("options", "gpu"),
    [
        ("--tp-size 8 --nnodes 2", "GB300"),
        ("--tp-size 16 --nnodes 2", "H200"),
        ("--tp-size 8 --pp-size 2 --nnodes 2", "B200"),
        ("--tp-size 16 --nnodes 4", "GB200"),
    ],
)
def test_the_smallest_deployments_fit(options: str, gpu: str) -> None:
    found = numbers(f"{options} --mem-fraction-static 0.85")
    assert found.gpu == gpu
    assert (found.load_problem, found.pool_problem) == (None, None)
    assert found.max_running > 0
    assert found.kv_tokens > 100_000
