"""The memory and pool figures that one launch reports: measured ones where a published run matches, else computed."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .gpus import handed_over
from .launch import Launch

_GIB = 1 << 30
_DATA = Path(__file__).resolve().parent / "data" / "profiles.json"
_KDA_LAYERS, _MLA_LAYERS, _HEADS, _MLA_WIDTH = 69, 24, 96, 576
_DRAFT_KV_BYTES = 1400


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What each rank logs and what nvidia-smi shows, for one launch."""

    gpu: str
    total_gib: float
    prefill_backend: str
    moe_backend: str
    init_s: float
    init_mem_gib: float
    load_s: float
    before_load_gib: float
    after_load_gib: float
    weights_gib: float
    state_slots: int
    slots_per_request: int
    conv_gib: float
    ssm_gib: float
    kv_tokens: int
    kv_gib: float
    after_pools_gib: float
    after_graphs_gib: float
    max_running: int
    is_capped_by_state: bool
    used_mib: int
    head_extra_mib: int
    load_problem: str | None = None
    pool_problem: str | None = None


def load_seconds() -> dict[str, float]:
    """Stage durations: the built-in ones, or those of LAB_ENGINE_SECONDS (a JSON object) where it names them."""
    seconds: dict[str, float] = json.loads(_DATA.read_text(encoding="utf-8"))["seconds"]
    told: dict[str, float] = json.loads(os.environ.get("LAB_ENGINE_SECONDS", "{}"))
    return seconds | told


def figures(launch: Launch, gpu_name: str | None) -> Numbers:
    """The figures for a launch on this GPU, with what the engine complains of when weights or pools don't fit."""
    data: dict[str, Any] = json.loads(_DATA.read_text(encoding="utf-8"))
    gpu = _gpu(data, launch, gpu_name)
    kind = data["gpus"][gpu]
    ratio = launch.args.mamba_full_memory_ratio or 0.9
    fraction = launch.args.mem_fraction_static or 0.85
    kv_bytes = 1 if "fp8" in launch.args.kv_cache_dtype else 2
    key = {
        "gpu": gpu,
        "tp": launch.tp_size,
        "pp": launch.pp_size,
        "dcp": launch.dcp_size,
        "fraction": fraction,
        "ratio": ratio,
        "has_draft": launch.has_draft,
        "kv_bytes": kv_bytes,
    }
    for measured in data["measured"]:
        if measured["when"] == key:
            return _complete(launch, gpu, kind, {k: v for k, v in measured.items() if k not in ("when", "source")})
    return _complete(launch, gpu, kind, _computed(launch, data, kind, fraction, ratio, kv_bytes))


def _gpu(data: dict[str, Any], launch: Launch, named: str | None) -> str:
    seen = handed_over()
    name = named or (seen.name if seen else "")
    for known in sorted(data["gpus"], key=len, reverse=True):
        if known in name:
            return str(known)
    for shape in data["shapes"]:
        if (shape["tp"], shape["pp"], shape["nnodes"]) == (launch.tp_size, launch.pp_size, launch.nnodes):
            return str(shape["gpu"])
    return "B300"


def _computed(
    launch: Launch, data: dict[str, Any], kind: dict[str, float], fraction: float, ratio: float, kv_bytes: int
) -> dict[str, Any]:
    before = kind["total_gib"] - kind["context_gib"]
    weights = float(data["weights_gib_by_world"].get(str(launch.world_size), 1560.0 / launch.world_size))
    after = before - weights
    rest = after - before * (1 - fraction)
    minimum = 1 - after / before
    problems = {}
    if after <= 0:
        problems["load_problem"] = (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of "
            f"{kind['total_gib']:.2f} GiB of which 0.44 GiB is free."
        )
    elif rest <= 0:
        problems["pool_problem"] = (
            f"ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={fraction}. "
            f"Raise --mem-fraction-static above {minimum:.3f} (minimum viable = 1 - available/pre = {minimum:.4f}). "
            "If using speculative decoding, draft weights are now counted."
        )
    rest = max(rest, 0.01)
    per_slot = sum(state_bytes(launch))
    state_gib = rest * ratio / (1 + ratio)
    slots = int(launch.args.max_mamba_cache_size or state_gib * _GIB // per_slot)
    per_token = _MLA_LAYERS * _MLA_WIDTH * kv_bytes / launch.dcp_size + (_DRAFT_KV_BYTES if launch.has_draft else 0)
    tokens = int((rest - state_gib) * _GIB / per_token) // 64 * 64
    after_pools = after - rest
    return {
        "init_s": 12.0,
        "init_mem_gib": 0.47,
        "load_s": 300.0,
        "before_load_gib": before,
        "after_load_gib": after,
        "weights_gib": weights,
        "kv_tokens": tokens,
        "kv_gib": rest - state_gib,
        "after_pools_gib": after_pools,
        "after_graphs_gib": after_pools - 1.23,
        "state_slots": slots,
        "max_running": min(slots // slots_per_request(launch), tokens // 2),
        "used_mib": round((kind["total_gib"] - after_pools + 1.23) * 1024),
        "head_extra_mib": 830,
        **problems,
    }


def state_bytes(launch: Launch) -> tuple[int, int]:
    """Bytes of one request's convolution and recurrent state on one GPU."""
    heads = _HEADS / launch.attention_tp
    element = 2 if launch.args.mamba_ssm_dtype in ("bfloat16", "float16") else 4
    return int(_KDA_LAYERS * 9 * heads * 128 * 2), int(_KDA_LAYERS * heads * 128 * 128 * element)


def slots_per_request(launch: Launch) -> int:
    """State slots that one request takes: one live, the rest held for the prefix cache."""
    args = launch.args
    if args.disaggregation_mode == "decode" or args.disable_radix_cache:
        return 1
    strategy = args.mamba_radix_cache_strategy
    if strategy == "no_buffer":
        return 3
    slots = 4 if strategy == "extra_buffer_lazy" or launch.pp_size > 1 or args.disable_overlap_schedule else 5
    return slots - (os.environ.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "0") == "1")


def _complete(launch: Launch, gpu: str, kind: dict[str, Any], found: dict[str, Any]) -> Numbers:
    conv, ssm = state_bytes(launch)
    asked = launch.args.max_running_requests
    cap = int(found.pop("max_running"))
    wanted = asked if asked is not None else 48 if launch.has_draft else 4096
    return Numbers(
        gpu=gpu,
        total_gib=kind["total_gib"],
        prefill_backend=launch.args.prefill_attention_backend or kind["prefill_backend"],
        moe_backend=kind["moe"] if launch.args.moe_runner_backend == "auto" else launch.args.moe_runner_backend,
        slots_per_request=slots_per_request(launch),
        conv_gib=conv * found["state_slots"] / _GIB,
        ssm_gib=ssm * found["state_slots"] / _GIB,
        max_running=min(cap, wanted),
        is_capped_by_state=cap < wanted,
        **found,
    )
