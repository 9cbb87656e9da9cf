"""Start-up rules of the engine that the command line alone decides, with the engine's own messages.

`check_launch` is what the main process refuses before any worker starts (a traceback, exit code 1);
`check_model` is what every scheduler refuses once it knows the model (a scheduler exception, the tree goes down).
"""

import json
from typing import Any

from .launch import Launch

_SPECULATIVE = ("EAGLE", "EAGLE3", "NEXTN", "NGRAM", "STANDALONE", "DFLASH", "DSPARK")
_DCP_DECODE_BACKENDS = (None, "cutedsl_mla", "tokenspeed_mla", "aiter")


def check_launch(launch: Launch) -> None:
    """Raise what the engine raises for sizes and options that can't go together."""
    args = launch.args
    _check_sizes(launch)
    assert ":" not in launch.served_model_name, (
        "served_model_name cannot contain a colon (':') character. "
        "The colon is reserved for the 'model:adapter' syntax used in LoRA adapter specification. "
        f"Invalid value: '{launch.served_model_name}'"
    )
    if args.mem_fraction_static is not None:
        assert 0 < args.mem_fraction_static < 1, "mem_fraction_static must be in (0, 1)"
    json.loads(args.model_loader_extra_config or "{}")
    _check_decode_context(launch)
    _check_state_cache(launch)
    _check_speculation(launch)
    if getattr(args, "shared_experts_tp_size", None) is not None and args.moe_a2a_backend == "none":
        raise ValueError("--shared-experts-tp-size requires an expert-parallel all-to-all backend (--moe-a2a-backend).")


def _check_sizes(launch: Launch) -> None:
    args = launch.args
    attn_dp_flag = getattr(args, "attn_dp_size", 1)
    if launch.attn_dp_size < 1:
        raise ValueError(f"--attn-dp-size must be positive (got {launch.attn_dp_size}).")
    if attn_dp_flag > 1 and args.dp_size > 1 and not args.enable_dp_attention:
        raise ValueError(
            f"--dp-size {args.dp_size} with --attn-dp-size {attn_dp_flag}: data-parallel replicas combined with "
            "attention data parallelism are not supported."
        )
    assert launch.world_size % launch.nnodes == 0, "tp_size must be divisible by number of nodes"
    assert 0 <= launch.node_rank < launch.nnodes, (
        f"node_rank must be in [0, nnodes): got node_rank={launch.node_rank}, nnodes={launch.nnodes}"
    )
    is_attention_dp = launch.attn_dp_size > 1
    assert not (args.dp_size > 1 and launch.nnodes != 1 and not is_attention_dp), (
        "multi-node data-parallel replicas are not supported; use attention DP (--attn-dp-size) across nodes"
    )
    assert launch.tp_size % launch.attn_dp_size == 0, "tp_size must be divisible by attn_dp_size * attn_cp_size"
    assert launch.ep_size <= launch.tp_size, "ep_size * moe_dp_size must be less than or equal to tp_size"
    assert launch.tp_size % launch.ep_size == 0, "tp_size must be divisible by ep_size"


def _check_decode_context(launch: Launch) -> None:
    if launch.dcp_size < 1:
        raise ValueError(
            "Decode context parallel size (--dcp-size / --decode-context-parallel-size) must be at least 1, "
            f"but got dcp_size={launch.dcp_size}."
        )
    comm = getattr(launch.args, "dcp_comm_backend", None)
    if comm in ("a2a", "fi_a2a") and launch.dcp_size <= 1:
        raise ValueError(
            f"--dcp-comm-backend {comm} only affects the decode context parallel exchange and requires --dcp-size / "
            f"--decode-context-parallel-size > 1, but got dcp_size={launch.dcp_size}."
        )
    if launch.dcp_size == 1:
        return
    assert launch.attention_tp % launch.dcp_size == 0, (
        f"attn_tp_size ({launch.attention_tp}) must be divisible by dcp_size ({launch.dcp_size})"
    )
    decode_backend = launch.args.decode_attention_backend or launch.args.attention_backend
    assert decode_backend in _DCP_DECODE_BACKENDS, (
        f"Kimi-K3 decode context parallelism requires the cutedsl_mla or aiter decode backend, got {decode_backend}"
    )


def _check_state_cache(launch: Launch) -> None:
    args = launch.args
    strategy = args.mamba_radix_cache_strategy
    if strategy == "extra_buffer_lazy":
        assert args.disaggregation_mode == "null", (
            "extra_buffer_lazy unsupported under PD disaggregation; use --mamba-radix-cache-strategy extra_buffer."
        )
        has_overlap = launch.pp_size == 1 and not args.disable_overlap_schedule
        assert has_overlap, "extra_buffer_lazy requires the overlap scheduler, which pipeline parallelism turns off."
    if strategy == "no_buffer":
        assert args.page_size in (1, None), "no_buffer only supports page_size=1."
        assert args.disable_overlap_schedule, (
            "no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True."
        )


def _check_speculation(launch: Launch) -> None:
    args = launch.args
    if args.enable_linear_replayssm_spec and args.disaggregation_mode == "prefill":
        raise ValueError(
            "--enable-linear-replayssm-spec is not supported on a PD prefill server: the ring is spec-verify-only "
            "scratch and the prefill server never runs spec verify."
        )
    if not launch.has_draft:
        return
    algorithm = str(args.speculative_algorithm).upper()
    if algorithm not in _SPECULATIVE:
        raise ValueError(f"Unknown speculative algorithm name: {args.speculative_algorithm}")
    if algorithm not in ("DSPARK", "DFLASH"):
        return
    assert args.speculative_draft_model_path is not None, f"{algorithm} requires --speculative-draft-model-path."
    assert launch.pp_size == 1 or args.disaggregation_mode == "prefill", (
        f"{algorithm} speculative decoding only supports pp_size == 1."
    )
    if launch.attn_dp_size > 1:
        assert algorithm == "DSPARK", f"{algorithm} does not support attention data parallelism."
        assert args.enable_dp_lm_head, "DSPARK with attention data parallelism requires --enable-dp-lm-head."
        assert args.moe_a2a_backend in ("none", "megamoe", "mori"), (
            f"DSPARK with attention data parallelism does not support --moe-a2a-backend {args.moe_a2a_backend}."
        )


def check_model(launch: Launch, config: dict[str, Any]) -> None:
    """Raise what a scheduler raises when the model can't be cut into this many pieces."""
    text = config.get("text_config", config)
    heads = int(text.get("num_attention_heads", 96))
    experts = int(text.get("n_routed_experts", text.get("num_experts", 896)))
    _divisible(heads, launch.attention_tp)
    _divisible(experts, launch.ep_size)
    _divisible(heads, launch.dcp_size)
    if launch.attn_dp_size == 1:
        _divisible(int(text.get("hidden_size", 7168)), launch.tp_size)
        _divisible(int(text.get("vocab_size", 163_840)), launch.tp_size)


def _divisible(numerator: int, denominator: int) -> None:
    assert numerator % denominator == 0, f"{numerator} is not divisible by {denominator}"


def warnings(launch: Launch, given: list[str]) -> list[str]:
    """What the engine says but does not refuse."""
    found = []
    if launch.args.enable_symm_mem and launch.dcp_size > 1:
        found.append("--enable-symm-mem is ignored with decode context parallelism.")
    for flag, instead in (
        ("--enable-dp-attention", "--attn-dp-size"),
        ("--disable-cuda-graph", "--cuda-graph-backend-decode disabled"),
        ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
    ):
        if flag in given:
            found.append(f"{flag} is deprecated and will be removed in a future release. Please use {instead} instead.")
    return found
