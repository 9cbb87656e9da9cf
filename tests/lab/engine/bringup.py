"""From options to a loaded model: the stages of one node, each with the lines that its ranks print."""

import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial

from . import log, rules
from .gpus import handed_over
from .group import Group
from .launch import Launch, Rank
from .mischief import Mischief
from .model_files import Model, check_weights
from .nics import check_interfaces
from .numbers import Numbers, figures, load_seconds
from .server import Gate, Server
from .state import StateFile
from .version import is_since

_MIB = 1024


class SchedulerFailed(Exception):
    """A scheduler hit an exception; the tree goes down."""


class SchedulerKilled(Exception):
    """A scheduler died without a word."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Bringup:
    """The stages up to loaded, captured and ready to serve, on this node."""

    def __init__(self, launch: Launch, model: Model, group: Group, mischief: Mischief, state: StateFile) -> None:
        self._launch = launch
        self._model = model
        self._group = group
        self._mischief = mischief
        self._state = state
        self._ranks = launch.ranks()
        self._is_new = is_since(launch.version, "0.5.21")
        self._seconds = load_seconds() | (mischief["seconds"] or {})
        self._cap = 0
        self.numbers: Numbers

    def run(self) -> Numbers:
        """All stages; raises SchedulerFailed or SchedulerKilled."""
        self._form_group()
        self._wait_at_gate()
        self._load()
        self._allocate_pools()
        self._capture_graphs()
        return self.numbers

    def enter(self, stage: str) -> None:
        """Note the stage, then misbehave or take the time that it takes."""
        self._state.update(stage=stage)
        if self._mischief.at("hang_at", stage):
            threading.Event().wait()
        if self._mischief.at("kill_at", stage):
            raise SchedulerKilled(-9)
        if self._mischief.at("oom_at", stage):
            total = self.numbers.total_gib
            raise SchedulerFailed(
                f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB. GPU 0 has a total capacity "
                f"of {total:.2f} GiB of which 612.94 MiB is free. Process 1 has {total - 0.6:.2f} GiB memory in use."
            )
        if self._mischief.at("crash_at", stage):
            raise SchedulerFailed(f"RuntimeError: asked to fail at {stage}")

    def pause(self, stage: str) -> None:
        """The stage's share of the start-up time."""
        time.sleep(self._seconds.get(stage, 0.0))

    def _each(self, text: Callable[[Rank], str] | str) -> None:
        for rank in self._ranks:
            log.line(text if isinstance(text, str) else text(rank), rank.tag)

    def _meet(self, stage: str) -> None:
        """A collective of all ranks, with torch's watchdog."""
        timeout_s = self._launch.dist_timeout_s
        if self._group.barrier(stage, timeout_s):
            return
        first = self._ranks[0].tp_rank
        log.raw(
            f"[rank{first}]:[E] [PG ID 2 PG GUID 3 Rank {first}] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)={timeout_s * 1000:.0f}) "
            f"ran for {timeout_s * 1000 + 12:.0f} milliseconds before timing out.\n"
        )
        raise SchedulerKilled(-6)

    def _form_group(self) -> None:
        self._each("Init parallel begin." if self._is_new else "Init torch distributed begin.")
        self._state.update(stage="init")
        try:
            check_interfaces()
            rules.check_model(self._launch, self._model.config)
        except (AssertionError, OSError, RuntimeError) as error:
            raise SchedulerFailed(f"{type(error).__name__}: {error}") from error
        self._check_gpus()
        self._group.form()
        self.numbers = figures(self._launch, self._mischief["gpu"])
        self.enter("init")
        self.pause("init")
        numbers = self.numbers
        ends = f"elapsed={numbers.init_s:.2f} s"
        if self._is_new:
            self._each(f"Init parallel ends. {ends}")
        else:
            self._each(f"Init torch distributed ends. {ends}, mem usage={numbers.init_mem_gib:.2f} GB")
        self._use(numbers.total_gib - numbers.before_load_gib)
        self._check_balance()

    def _check_gpus(self) -> None:
        seen = handed_over()
        if seen is not None and seen.count < len(self._ranks):
            raise SchedulerFailed(
                "torch.AcceleratorError: CUDA error: invalid device ordinal\n"
                "GPU device may be out of range, do you have enough GPUs?"
            )

    def _check_balance(self) -> None:
        local = self.numbers.before_load_gib
        seen = handed_over()
        lowest = local * 0.72 if self._mischief["memory_imbalance"] else local
        lowest -= seen.occupied_mib / _MIB if seen else 0
        if lowest >= local * 0.9:
            return
        text = (
            "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
            f"pre_model_load_memory={lowest}, local_gpu_memory={local}, local_gpu_memory * 0.9={local * 0.9}"
        )
        if _is_false("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"):
            self._each(text)
        else:
            raise SchedulerFailed(f"RuntimeError: {text}")

    def _wait_at_gate(self) -> None:
        port = getattr(self._launch.args, "gated_launch_port", None)
        if port is None:
            return
        self._state.update(stage="gate")
        if self._launch.node_rank == 0:
            host = self._launch.args.host
            Server((host, port), Gate)
            log.line(f"Gated launch control server started on {host}:{port}", self._ranks[0].tag)
        self._each(lambda rank: f"Gated launch waiting for activation. rank={rank.tp_rank}")
        began = time.monotonic()
        if self._launch.node_rank == 0:
            while not Gate.activated.wait(10):
                waited = f"elapsed={time.monotonic() - began:.0f} s"
                self._each(partial(_still_waiting, waited))
        self._group.barrier("gate", None)
        self._each(f"Gated launch activated. elapsed={time.monotonic() - began:.2f} s")

    def _load(self) -> None:
        numbers = self.numbers
        self._each(f"Load weight begin. avail mem={numbers.before_load_gib:.2f} GB")
        if not self._is_new:
            self._each(
                "FlashInfer TRTLLM MoE deferred finalize is disabled "
                f"(moe_runner_backend={numbers.moe_backend}, quant_method=Mxfp4MoEMethod)."
            )
        try:
            shards = check_weights(self._model)
        except Exception as error:
            raise SchedulerFailed(f"{type(error).__name__}: {error}") from error
        if numbers.load_problem:
            raise SchedulerFailed(numbers.load_problem)
        self._show_progress(shards)
        self._use(numbers.total_gib - numbers.after_load_gib)
        self._each(
            f"Load weight end. elapsed={numbers.load_s:.2f} s, type={self._model.architecture}, "
            f"quant=compressed-tensors, avail mem={numbers.after_load_gib:.2f} GB, "
            f"mem usage={numbers.weights_gib:.2f} GB."
        )
        self._meet("loaded")

    def _show_progress(self, shards: int) -> None:
        """The bar of the node's first rank, with the memory growing beside it; misbehaviour strikes half way."""
        extra = json.loads(self._launch.args.model_loader_extra_config or "{}")
        is_threaded = bool(extra.get("enable_multithread_load"))
        desc = "Multi-thread loading shards" if is_threaded else "Loading safetensors checkpoint shards"
        numbers = self.numbers
        began = time.monotonic()
        updates = 8
        for update in range(updates + 1):
            if update == updates // 2:
                self.enter("load")
            done = shards * update // updates
            log.raw(log.bar(desc, done, shards, time.monotonic() - began))
            self._use(numbers.total_gib - numbers.before_load_gib + numbers.weights_gib * update / updates)
            if update < updates:
                time.sleep(self._seconds["load"] / updates)
        log.raw("\n")

    def _allocate_pools(self) -> None:
        numbers = self.numbers
        self.enter("pools")
        if numbers.pool_problem:
            raise SchedulerFailed(numbers.pool_problem)
        self.pause("pools")
        slots, per_request, cap = numbers.state_slots, numbers.slots_per_request, numbers.max_running
        is_capped = numbers.is_capped_by_state and is_since(self._launch.version, "0.5.20")
        if told := self._mischief["capped"]:
            told = told if isinstance(told, dict) else {}
            slots, per_request, cap = told.get("slots", 303), told.get("per_request", 5), told.get("requests", 60)
            is_capped = True
        self._each(
            f"Mamba Cache is allocated. max_mamba_cache_size: {slots}, conv_state size: {numbers.conv_gib:.2f}GB, "
            f"ssm_state size: {numbers.ssm_gib:.2f}GB "
        )
        dtype = "torch.float8_e4m3fn" if "fp8" in self._launch.args.kv_cache_dtype else "torch.bfloat16"
        kind = "VA upper bound" if self._is_new else "is allocated"
        self._each(f"KV Cache {kind}. dtype: {dtype}, #tokens: {numbers.kv_tokens}, KV size: {numbers.kv_gib:.2f} GB")
        self._each(f"Memory pool end. avail mem={numbers.after_pools_gib:.2f} GB")
        self._use(numbers.total_gib - numbers.after_pools_gib)
        args = self._launch.args
        decode = args.decode_attention_backend or args.attention_backend
        if decode and decode != numbers.prefill_backend:
            self._each(
                "Using hybrid attention backend for decode and prefill: "
                f"decode_backend={decode}, prefill_backend={numbers.prefill_backend}."
            )
        if self._launch.has_draft and args.max_running_requests is None:
            self._each("Max running requests is reset to 48 for speculative decoding")
        if is_capped:
            self._each(
                f"max_running_requests is capped to {cap} by the mamba state cache "
                f"(max_mamba_cache_size={slots}, {per_request} state slots per request). To raise it: increase "
                "--mamba-full-memory-ratio or --max-mamba-cache-size, or halve the state size with "
                "--mamba-ssm-dtype bfloat16."
            )
        self._cap = cap

    def _capture_graphs(self) -> None:
        numbers = self.numbers
        args = self._launch.args
        self.enter("graphs")
        if not args.disable_cuda_graph:
            used = numbers.after_pools_gib - numbers.after_graphs_gib
            names = ["target verify", "draft verify"] if self._launch.has_draft else ["target decode"]
            for name in names:
                self._each(
                    f"Capture {name} CUDA graph begin. backend=full, num_tokens_per_req=1, "
                    f"avail mem={numbers.after_pools_gib:.2f} GB"
                )
                self.pause("graphs")
                self._each(
                    f"Capture {name} CUDA graph end. bs=[1, 2, 4, 8, 12, 16, 24, 32, 40, 48], elapsed=74.00 s, "
                    f"mem usage={used:.2f} GB, avail mem={numbers.after_graphs_gib:.2f} GB."
                )
        if self._is_new:
            self._each(
                f"Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: {numbers.kv_tokens}, "
                f"KV size: {numbers.kv_gib:.2f} GB, avail mem={numbers.after_graphs_gib:.2f} GB"
            )
        self._state.use_memory(numbers.used_mib, numbers.head_extra_mib)
        self._meet("captured")
        heads = [rank for rank in self._ranks if rank.tp_rank == 0]
        context_len = args.context_length or self._model.context_len
        for rank in heads:
            log.line(
                f"max_total_num_tokens={numbers.kv_tokens}, chunked_prefill_size={self._chunk()}, "
                f"max_prefill_tokens={args.max_prefill_tokens}, max_running_requests={self._cap}, "
                f"context_len={context_len}, available_gpu_mem={numbers.after_graphs_gib:.2f} GB",
                rank.tag,
            )

    def _chunk(self) -> int:
        asked = self._launch.args.chunked_prefill_size
        default = 8192 if self.numbers.total_gib < 160 else 16384
        return int(asked if asked is not None else default) // self._launch.attn_dp_size

    def _use(self, gib: float) -> None:
        self._state.use_memory(round(gib * _MIB))


def _still_waiting(waited: str, rank: Rank) -> str:
    return f"Gated launch still waiting for activation. rank={rank.tp_rank} {waited}"


def _is_false(name: str) -> bool:
    return os.environ.get(name, "true").lower() in ("0", "false", "no")
