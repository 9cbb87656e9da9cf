"""What a running engine accepts, from its own log: tokens in the KV pool, requests at a time, the longest request."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from k3deploy.domain.launch.watch import RankLog

# Kimi K3 caches 576 values (latent 512 + rope 64) per token in each of its 24 MLA layers; KDA layers cache none.
_KV_VALUES_PER_TOKEN: Final = 24 * 576
_GIB: Final = 1024**3


@dataclass(frozen=True)
class Capacity:
    """None: the log did not say. `cap` holds the figures of the engine's warning that the state pool limits requests.

    `longest_request_tokens`: a request lives wholly in one KV pool, so it can be no longer than that pool, whatever
    context length the model advertises. With attention data parallelism each group has a pool of its own and they do
    not add up for one request; with decode context parallelism one pool is striped over the GPUs of a group.
    """

    context_tokens: int | None
    pool_tokens: int | None
    max_running_requests: int | None
    cap: Mapping[str, int]

    @property
    def longest_request_tokens(self) -> int | None:
        if self.pool_tokens is None:
            return None
        return self.pool_tokens if self.context_tokens is None else min(self.pool_tokens, self.context_tokens)

    @property
    def sentence(self) -> str:
        """The one way in which a context length is told: never without the pool beside it."""
        if self.longest_request_tokens is None:
            return "the engine's log does not say how many tokens its KV pool holds"
        told = f"the KV pool holds one request of at most {self.longest_request_tokens:,} tokens"
        return told if self.context_tokens is None else f"context_len {self.context_tokens:,} advertised; {told}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "longest_request_tokens": self.longest_request_tokens}


def capacity(log: RankLog, *, decode_context: int) -> Capacity:
    """From the head's log, all of whose lines tp rank 0 prints (SGLang 0.5.17 to 0.5.23).

    `decode_context` is the width over which the KV pool is striped, 1 for none.
    """
    pool = _count(log, "scheduler", "max_total_num_tokens")
    pool = pool if pool is not None else _count(log, "kv_pool", "kv_tokens")
    if pool is not None and decode_context > 1 and _counts_one_stripe(log, pool):
        pool *= decode_context
    cap = {name: value for name, value in log.figures.get("cap", {}).items() if isinstance(value, int)}
    running = _count(log, "scheduler", "max_running_requests")
    return Capacity(
        context_tokens=_count(log, "scheduler", "context_len"),
        pool_tokens=pool,
        max_running_requests=running if running is not None else cap.get("max_running_requests"),
        cap=cap,
    )


def _counts_one_stripe(log: RankLog, pool_tokens: int) -> bool:
    """Whether the log counted the tokens of one GPU: then their bytes fill the KV size that it states.

    Published runs of the same model show both ways of counting: 601,664 tokens in 15.5 GiB a GPU, and 936,448 tokens
    in 3.0 GiB a GPU striped over 8.
    """
    kv_gib = log.number("kv_pool", "kv_gib")
    if not kv_gib:
        return False
    bytes_each = 1 if "float8" in str(log.figure("kv_pool", "dtype")) else 2
    return pool_tokens * _KV_VALUES_PER_TOKEN * bytes_each < 1.5 * kv_gib * _GIB


def _count(log: RankLog, topic: str, name: str) -> int | None:
    found = log.figure(topic, name)
    return found if isinstance(found, int) else None
