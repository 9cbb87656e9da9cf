"""Ready, as a verdict over what was read back: every rank lives and the head serves the right model.

`ready_record` is what the logs told when the engine came up. It is kept on the head node beside the containers it
speaks of, so that a later run need not read the logs again, and it counts only as long as those containers live.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.launch.capacity import Capacity
from k3deploy.domain.launch.record import ContainerSeen
from k3deploy.domain.launch.replica_watch import RankWatch
from k3deploy.domain.launch.stages import Stage
from k3deploy.domain.names import NodeName

SCHEMA: Final = 1
# More than this part of the expected GPU memory too much or too little is worth saying; it is no failure.
_MEMORY_DEVIATION: Final = 0.05
# Published runs had GPUs fail on the first long prompt with less left than this.
_LOW_FREE_GIB: Final = 4.0


@dataclass(frozen=True)
class EngineSeen:
    """One rank's answer of `sections/engine.py`, typed. Statuses are None when nothing answered."""

    node: NodeName
    daemon: str
    container: ContainerSeen | None
    health_status: int | None
    health_error: str
    models_status: int | None
    models: tuple[tuple[str, int | None], ...]  # id, max_model_len
    ready: Mapping[str, Any] | None
    chat: Mapping[str, Any] | None

    @property
    def identity(self) -> str | None:
        return self.container.identity if self.container is not None and self.container.is_running else None

    @staticmethod
    def parse(node: NodeName, body: Mapping[str, Any]) -> "EngineSeen":
        health, models = body["health"] or {}, body["models"] or {}
        listed = models.get("body")
        cards = listed.get("data", ()) if isinstance(listed, dict) else ()
        return EngineSeen(
            node=node,
            daemon=body["daemon"],
            container=ContainerSeen.parse(body["container"]),
            health_status=health.get("status"),
            health_error=health.get("error", ""),
            models_status=models.get("status"),
            models=tuple((str(card.get("id")), card.get("max_model_len")) for card in cards),
            ready=body["ready"],
            chat=body["chat"],
        )


def identities(ranks: Sequence[EngineSeen]) -> dict[str, str | None]:
    """Node -> its container in this life of it; None where none runs."""
    return {str(rank.node): rank.identity for rank in ranks}


def ready_record(
    ranks: Sequence[RankWatch], containers: Mapping[str, str | None], told: Capacity, differences: Sequence[str]
) -> dict[str, Any]:
    """The content of ready.json."""
    head = next(rank for rank in ranks if rank.is_head)
    return {
        "schema": SCHEMA,
        "containers": dict(containers),
        "capacity": told.as_dict(),
        "sentence": told.sentence,
        "stages_s": {str(rank.node): stage_seconds(rank) for rank in ranks},
        "available_gpu_gib": head.log.number("scheduler", "available_gpu_gib"),
        "weights_gib_per_gpu": head.log.number("loaded", "mem_usage_gib"),
        "kv_gib_per_gpu": head.log.number("kv_pool", "kv_gib"),
        "differences": list(differences),
    }


def stage_seconds(rank: RankWatch) -> dict[str, float]:
    """How long each stage took to be reached, in seconds since the container started."""
    times = {stage: rank.log.since(stage) for stage in Stage if stage in rank.log.reached}
    return {stage.name.lower(): round(at - rank.log.started_at, 1) for stage, at in times.items() if at is not None}


def counts_for(record: Mapping[str, Any] | None, containers: Mapping[str, str | None]) -> bool:
    """Whether a record speaks of exactly these containers, all of them running."""
    return (
        record is not None
        and record.get("schema") == SCHEMA
        and None not in containers.values()
        and record.get("containers") == dict(containers)
    )


def not_serving(ranks: Sequence[EngineSeen], *, model_id: str, context_tokens: int | None) -> tuple[str, ...]:
    """What is wrong with a replica whose head comes first; empty when it serves."""
    found = []
    for at, rank in enumerate(ranks):
        if rank.container is None:
            found.append(f"rank {at} on {rank.node} has no container")
        elif not rank.container.is_running:
            found.append(f"rank {at} on {rank.node} {rank.container.does}")
        elif rank.health_status != 200:
            answer = f"answers {rank.health_status}" if rank.health_status else f"does not answer ({rank.health_error})"
            found.append(f"rank {at} on {rank.node}: /health {answer}")
    head = ranks[0]
    if head.container is not None and head.container.is_running and head.health_status == 200:
        found += _wrong_model(head, model_id, context_tokens)
    return tuple(found)


def _wrong_model(head: EngineSeen, model_id: str, context_tokens: int | None) -> list[str]:
    if head.models_status != 200:
        return [f"{head.node}: /v1/models answers {head.models_status}"]
    lengths = dict(head.models)
    if model_id not in lengths:
        return [f"{head.node}: /v1/models lists {', '.join(lengths) or 'nothing'}, not {model_id}"]
    if context_tokens is not None and lengths[model_id] != context_tokens:
        return [f"{head.node}: /v1/models says max_model_len {lengths[model_id]}, the profile says {context_tokens}"]
    return []


@dataclass(frozen=True)
class GpuMemory:
    """Memory in use on one rank's GPUs, MiB, beside what the profile expects (None: nobody measured it)."""

    node: NodeName
    node_rank: int
    used_mib: tuple[int, ...]
    expected_mib: int | None

    @property
    def deviations(self) -> tuple[str, ...]:
        if self.expected_mib is None:
            return ()
        return tuple(
            f"rank {self.node_rank} on {self.node}, GPU {gpu}: {used:,} MiB used, {self.expected_mib:,} expected"
            for gpu, used in enumerate(self.used_mib)
            if abs(used - self.expected_mib) > _MEMORY_DEVIATION * self.expected_mib
        )

    @property
    def text(self) -> str:
        if not self.used_mib:
            return f"rank {self.node_rank} on {self.node}: GPU memory not known"
        low, high = min(self.used_mib), max(self.used_mib)
        used = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        wanted = "nobody measured what to expect" if self.expected_mib is None else f"{self.expected_mib:,} expected"
        return f"rank {self.node_rank} on {self.node}: {used} MiB used on {len(self.used_mib)} GPUs, {wanted}"

    @staticmethod
    def of(node: NodeName, node_rank: int, facts: NodeFacts, expected_mib: int | None) -> "GpuMemory":
        used = tuple(gpu.memory_used_mib for gpu in facts.gpus or () if gpu.memory_used_mib is not None)
        return GpuMemory(node, node_rank, used, expected_mib)


def warnings(record: Mapping[str, Any], memory: Sequence[GpuMemory]) -> tuple[str, ...]:
    """What is not as expected and yet no failure."""
    found = [line for each in memory for line in each.deviations]
    found += record.get("differences", ())
    free_gib = record.get("available_gpu_gib")
    if free_gib is not None and free_gib < _LOW_FREE_GIB:
        found.append(
            f"only {free_gib:.2f} GiB of GPU memory are left: a long prompt may run out of it; "
            "lower mem-fraction-static by 0.03 if it does"
        )
    longest = record.get("capacity", {}).get("longest_request_tokens")
    context = record.get("capacity", {}).get("context_tokens")
    if longest is not None and context is not None and longest < context:
        found.append(f"requests above {longest:,} tokens cannot be served, though {context:,} are advertised")
    return tuple(found)
