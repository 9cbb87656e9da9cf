"""`/metrics`: the engine's Prometheus names, `sglang:` and its labels."""

from .launch import Launch
from .numbers import Numbers


class Counters:
    """What has been served so far."""

    def __init__(self) -> None:
        self.running = 0
        self.requests = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.aborted = 0


def render(launch: Launch, numbers: Numbers, counters: Counters, startup_s: float) -> str:
    """The text of one scrape."""
    labels = {
        "model_name": launch.served_model_name,
        "engine_type": {"null": "unified"}.get(launch.args.disaggregation_mode, launch.args.disaggregation_mode),
        "tp_rank": "0",
        "pp_rank": "0",
        "moe_ep_rank": "0",
    }
    if launch.attn_dp_size > 1:
        labels["dp_rank"] = "0"
    inner = ",".join(f'{name}="{value}"' for name, value in labels.items())
    used = counters.running * 1024
    gauges = {
        "num_running_reqs": counters.running,
        "num_queue_reqs": 0,
        "num_used_tokens": used,
        "token_usage": used / numbers.kv_tokens,
        "full_token_usage": used / numbers.kv_tokens,
        "max_total_num_tokens": numbers.kv_tokens,
        "kv_used_tokens": used,
        "kv_available_tokens": numbers.kv_tokens - used,
        "mamba_usage": counters.running * numbers.slots_per_request / numbers.state_slots,
        "mamba_used_tokens": counters.running * numbers.slots_per_request,
        "mamba_available_tokens": numbers.state_slots - counters.running * numbers.slots_per_request,
        "mamba_evictable_tokens": 0,
        "gen_throughput": 0.0,
        "cache_hit_rate": 0.0,
        "utilization": counters.running / max(1, numbers.max_running),
        "startup_time_seconds": startup_s,
        "weight_load_duration_seconds": numbers.load_s,
        "startup_available_gpu_memory_gb": numbers.after_graphs_gib,
        "weight_memory_usage_gb": numbers.weights_gib,
        "kv_cache_memory_usage_gb": numbers.kv_gib,
    }
    if launch.args.disaggregation_mode != "null":
        gauges |= {
            "num_prefill_bootstrap_queue_reqs": 0,
            "num_prefill_inflight_queue_reqs": 0,
            "num_decode_prealloc_queue_reqs": 0,
            "num_decode_transfer_queue_reqs": 0,
        }
    totals = {
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generation_tokens,
        "num_requests_total": counters.requests,
        "num_aborted_requests_total": counters.aborted,
    }
    lines = []
    for kind, series in (("gauge", gauges), ("counter", totals)):
        for name, value in series.items():
            lines += [f"# TYPE sglang:{name} {kind}", f"sglang:{name}{{{inner}}} {float(value)}"]
    return "\n".join(lines) + "\n"
