"""Whether a node is free of a run: no container of it, GPU memory back to nothing, its ports closed. Pure."""

from dataclasses import dataclass
from typing import Final

from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.launch.record import NodeSeen

# An idle GPU shows a few MiB, with some drivers and ECC a few hundred; an engine holds tens of thousands.
_IDLE_MIB: Final = 1024


@dataclass(frozen=True)
class Freed:
    """`ours`: what still is the run's; `others`: what somebody else has there, which is told and keeps nobody."""

    ours: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def is_free(self) -> bool:
        return not self.ours


def freed(facts: NodeFacts, seen: NodeSeen, ports: tuple[int, ...]) -> Freed:
    """`ports`: those on which this node's part of the engine listened."""
    own_id = seen.container.id if seen.container is not None and seen.is_ours else None
    ours = [f"container {own_id[:12]} is there"] if own_id is not None else []
    others: list[str] = []
    if facts.gpus is None:
        ours.append(f"its GPUs' memory cannot be read ({facts.why('gpus')})")
    holders = {process.gpu_uuid: process for process in facts.gpu_processes or ()}
    for gpu in facts.gpus or ():
        used = gpu.memory_used_mib or 0
        if used <= _IDLE_MIB:
            continue
        process = holders.get(gpu.uuid)
        if process is None:
            ours.append(f"GPU {gpu.index}: {used:,} MiB in use, and no process says why")
        elif own_id is not None and process.container == own_id:
            ours.append(f"GPU {gpu.index}: {used:,} MiB in use by the engine")
        else:
            others.append(
                f"GPU {gpu.index}: {used:,} MiB in use by pid {process.pid} ({process.name}), not of this run"
            )
    for holder in seen.holders:
        if holder.port not in ports:
            continue
        if holder.pid is None or (own_id is not None and holder.container == own_id):
            ours.append(f"port {holder.port} is still open, held by {holder.text}")
        else:
            others.append(f"port {holder.port} is held by {holder.text}, not of this run")
    return Freed(tuple(ours), tuple(others))
