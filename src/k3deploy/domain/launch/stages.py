"""What one line of SGLang's log says: which stage of the start-up was reached, and the numbers in it. Pure, by text.

Two wordings are known and both are matched, as nobody knows beforehand which build an image holds:
A, SGLang 0.5.17 to 0.5.20 and the launch-time Kimi K3 images; B, SGLang 0.5.21 and later.
A line has the form `[YYYY-mm-dd HH:MM:SS TPn EPn] text`; only lines of the GPU workers carry the rank tags.
SGLang's "GB" are GiB, so figures are named `..._gib`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from k3deploy.domain.launch.failures import Failure, find_failure

Figure = int | float | str


class Stage(IntEnum):
    """In the order in which a healthy start passes them. Values only order; `text` is what people read."""

    STARTED = 0
    TOKENIZER = 1
    GROUP_FORMING = 2
    GROUP_FORMED = 3
    GATE = 4
    LOADING = 5
    LOADED = 6
    STATE_POOL = 7
    KV_POOL = 8
    POOLS_DONE = 9
    GRAPHS = 10
    GRAPHS_DONE = 11
    SCHEDULER_UP = 12
    HTTP_UP = 13
    READY = 14

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS: Final[Mapping[Stage, str]] = {
    Stage.STARTED: "container started",
    Stage.TOKENIZER: "tokenizer loaded",
    Stage.GROUP_FORMING: "joining the process group",
    Stage.GROUP_FORMED: "process group formed",
    Stage.GATE: "waiting at the launch gate",
    Stage.LOADING: "loading weights",
    Stage.LOADED: "weights loaded",
    Stage.STATE_POOL: "state pool allocated",
    Stage.KV_POOL: "KV pool allocated",
    Stage.POOLS_DONE: "memory pools done",
    Stage.GRAPHS: "recording CUDA graphs",
    Stage.GRAPHS_DONE: "CUDA graphs recorded",
    Stage.SCHEDULER_UP: "scheduler up",
    Stage.HTTP_UP: "HTTP up, warming up",
    Stage.READY: "ready",
}


@dataclass(frozen=True)
class Observation:
    """`at` is the engine's own clock in epoch seconds (its container runs in UTC), None where the line has none.

    `topic` names what the figures are about (`loaded`, `kv_pool`, `cap` ...). `fraction`, 0 to 1, is the state of a
    progress bar. `exception` is the last line of a Python traceback.
    """

    stage: Stage | None = None
    at: float | None = None
    tp_rank: int | None = None
    topic: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    failure: Failure | None = None
    fraction: float | None = None
    exception: str | None = None


@dataclass(frozen=True)
class _Read:
    name: str
    pattern: re.Pattern[str]
    convert: Callable[[str], Figure]


def _number(name: str, pattern: str) -> _Read:
    return _Read(name, re.compile(pattern), float)


def _count(name: str, pattern: str) -> _Read:
    return _Read(name, re.compile(pattern), int)


def _word(name: str, pattern: str) -> _Read:
    return _Read(name, re.compile(pattern), str)


@dataclass(frozen=True)
class _Mark:
    """Lines that contain one of `texts` reach `stage` (None: figures only) and may hold the figures of `reads`.

    `is_per_gpu`: every GPU worker prints it, so the node has reached the stage when its slowest worker has.
    """

    topic: str
    texts: tuple[str, ...]
    stage: Stage | None
    reads: tuple[_Read, ...] = ()
    is_per_gpu: bool = True


_ELAPSED = _number("elapsed_s", r"elapsed=([\d.]+) s")
_AVAIL = _number("avail_gib", r"avail mem=([\d.]+) GB")
_MEM_USAGE = _number("mem_usage_gib", r"mem usage=([\d.]+) GB")

# Two texts of wordings A and B stand side by side. The first mark that fits a line counts.
_MARKS: Final[tuple[_Mark, ...]] = (
    _Mark(
        "vocabulary",
        ("#words: ",),
        None,
        (
            _count("words", r"#words: (\d+)"),
            _count("bos_id", r"BOS ID: (\d+)"),
            _count("eos_id", r"EOS ID: (\d+)"),
        ),
        is_per_gpu=False,
    ),
    _Mark("tokenizer", ("Applying special tokens cache patch for Kimi tokenizer",), Stage.TOKENIZER, is_per_gpu=False),
    _Mark("group_begin", ("Init torch distributed begin", "Init parallel begin"), Stage.GROUP_FORMING),
    _Mark("group", ("Init torch distributed ends", "Init parallel ends"), Stage.GROUP_FORMED, (_ELAPSED, _MEM_USAGE)),
    _Mark("gate", ("Gated launch waiting for activation", "Gated launch still waiting"), Stage.GATE),
    _Mark("load_begin", ("Load weight begin",), Stage.LOADING, (_AVAIL,)),
    _Mark(
        "moe",
        ("moe_runner_backend=",),
        None,
        (
            _word("moe_runner_backend", r"moe_runner_backend=(\w+)"),
            _word("quant_method", r"quant_method=(\w+)"),
        ),
    ),
    _Mark(
        "loaded",
        ("Load weight end",),
        Stage.LOADED,
        (_ELAPSED, _word("type", r"\btype=(\w+)"), _word("quant", r"quant=([\w-]+)"), _AVAIL, _MEM_USAGE),
    ),
    _Mark(
        "state_pool",
        ("Mamba Cache is allocated",),
        Stage.STATE_POOL,
        (_count("max_mamba_cache_size", r"max_mamba_cache_size: (\d+)"),),
    ),
    _Mark(
        # B sizes the pool once more after the graphs are recorded: the last figures count.
        "kv_pool",
        ("KV Cache is allocated", "KV Cache VA upper bound", "KV cache allocated"),
        Stage.KV_POOL,
        (
            _word("dtype", r"dtype: ([\w.]+)"),
            _count("kv_tokens", r"#tokens: (\d+)"),
            _number("kv_gib", r"KV size: ([\d.]+) GB"),
        ),
    ),
    _Mark("pools", ("Memory pool end",), Stage.POOLS_DONE, (_AVAIL,)),
    _Mark(
        "attention",
        ("Using hybrid attention backend",),
        None,
        (
            _word("decode_backend", r"decode_backend=(\w+)"),
            _word("prefill_backend", r"prefill_backend=(\w+)"),
        ),
    ),
    _Mark(
        "cap",
        ("max_running_requests is capped to",),
        None,
        (
            _count("max_running_requests", r"capped to (\d+)"),
            _count("max_mamba_cache_size", r"max_mamba_cache_size=(\d+)"),
            _count("state_slots_per_request", r"(\d+) state slots per request"),
        ),
    ),
    _Mark(
        "draft_cap",
        ("Max running requests is reset to",),
        None,
        (_count("max_running_requests", r"reset to (\d+) for speculative"),),
    ),
    _Mark("graphs_begin", ("CUDA graph begin", "Capture cuda graph begin"), Stage.GRAPHS, (_AVAIL,)),
    _Mark("graphs", ("CUDA graph end", "Capture cuda graph end"), Stage.GRAPHS_DONE, (_ELAPSED, _MEM_USAGE, _AVAIL)),
    _Mark(
        "scheduler",
        ("max_total_num_tokens=",),
        Stage.SCHEDULER_UP,
        (
            _count("max_total_num_tokens", r"max_total_num_tokens=(\d+)"),
            _count("chunked_prefill_size", r"chunked_prefill_size=(-?\d+)"),
            _count("max_prefill_tokens", r"max_prefill_tokens=(\d+)"),
            _count("max_running_requests", r"max_running_requests=(\d+)"),
            _count("context_len", r"context_len=(\d+)"),
            _number("available_gpu_gib", r"available_gpu_mem=([\d.]+) GB"),
        ),
        is_per_gpu=False,  # only the first worker of each group prints it
    ),
    _Mark("http", ("Application startup complete",), Stage.HTTP_UP, is_per_gpu=False),
    _Mark(
        "http",
        ("Uvicorn running on",),
        Stage.HTTP_UP,
        (_word("address", r"://([\w.:\[\]]+?):\d+ "), _count("port", r"://[\w.:\[\]]+?:(\d+) ")),
        is_per_gpu=False,
    ),
    _Mark("ready", ("The server is fired up and ready to roll!",), Stage.READY, is_per_gpu=False),
)

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: [A-Z_]+\d+)*)\] ?(.*)", re.DOTALL)
_TP_RANK = re.compile(r" TP(\d+)")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?:: .*)?")
_BARS = ("Loading safetensors checkpoint shards", "Multi-thread loading shards", "prefetching checkpoint files")
_BAR_STATE = re.compile(r"(\d{1,3})%")
# One line with every option of the engine: its words would match half of the marks above.
_OPTIONS = "server_args=ServerArgs("


def read_line(line: str) -> Observation:
    """What one line says. Never raises: a line that says nothing gives an empty Observation."""
    text = line.strip()
    at, tp_rank = None, None
    stamped = _LINE.fullmatch(text)
    if stamped is not None:
        at = _epoch(stamped[1])
        tag = _TP_RANK.search(stamped[2])
        tp_rank = int(tag[1]) if tag else None
        text = stamped[3]
    if _OPTIONS in text:
        return Observation(at=at)
    failure = find_failure(text)
    exception = text if stamped is None and _EXCEPTION.fullmatch(text) else None
    if failure is not None or exception is not None:
        return Observation(at=at, tp_rank=tp_rank, failure=failure, exception=exception)
    if any(bar in text for bar in _BARS):
        state = _BAR_STATE.search(text)
        return Observation(at=at, fraction=int(state[1]) / 100 if state else None)
    for mark in _MARKS:
        if any(words in text for words in mark.texts):
            found = ((read, read.pattern.search(text)) for read in mark.reads)
            figures = {read.name: read.convert(match[1]) for read, match in found if match}
            return Observation(mark.stage, at, tp_rank if mark.is_per_gpu else None, mark.topic, figures)
    return Observation(at=at)


def _epoch(stamp: str) -> float | None:
    try:
        return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:  # 2026-02-30: whatever wrote that, it is no reason to stop watching
        return None
