"""Whether the weights stay in a node's memory (the kernel's page cache), so that the engine's start reads no disk.

A node reads the whole checkpoint, however many nodes share a replica: every rank's loader reads every shard and keeps
its slices (8 ranks read 12.5 TB of 1.56 TB; field report on 8 x B300). When all of it fits, it is read once. A cache
that is a little too small is of no use at all: reading in order, each page pushes out one that would be needed later.
"""

from dataclasses import dataclass
from typing import Final

from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.units import about_text

# What a rank takes of the host's memory while it loads: CUDA context, libraries, staging buffers, its part of /dev/shm
# (32 GB for 8 ranks). An estimate, as nobody has reported it: too high, and a cache that fits is not used.
RANK_BYTES: Final = 12_000_000_000
# Loading took 59 minutes from a cold cache, later starts 5 to 20 from a warm one: 1.56 TB, 8 x B300, field report.
MEASURED_BYTES: Final = 1_560_936_091_448
COLD_MIN: Final = 59.0
WARM_MIN: Final = (5.0, 20.0)


@dataclass(frozen=True)
class CacheChoice:
    """`available_bytes`: what the node can still give, caches counted as free; None where it does not say."""

    weights_bytes: int
    engine_bytes: int
    available_bytes: int | None

    @staticmethod
    def of(facts: NodeFacts, profile: Profile) -> "CacheChoice":
        engine_bytes = profile.hardware.gpus_per_node * RANK_BYTES
        return CacheChoice(profile.model.all_bytes, engine_bytes, facts.memory_available_bytes)

    @property
    def keeps(self) -> bool:
        """Whether the weights are kept in memory; otherwise they are read without filling it."""
        return self.available_bytes is not None and self.available_bytes >= self.weights_bytes + self.engine_bytes

    @property
    def sentence(self) -> str:
        """What is done, why, and the minutes at stake."""
        weights, engine = about_text(self.weights_bytes), about_text(self.engine_bytes)
        available = None if self.available_bytes is None else about_text(self.available_bytes)
        cold, warm = self._start_texts()
        if self.keeps:
            at_stake = f": first start {warm} min instead of {cold}" if cold else ""
            return f"keep {weights} in the page cache ({available} of memory free){at_stake}"
        at_stake = f": first start {cold} min, where more memory would make it {warm}" if cold else ""
        if available is None:
            return f"read past the page cache (the node does not say how much memory is free){at_stake}"
        return (
            f"read past the page cache ({weights} and {engine} for the engine do not fit into {available} of memory)"
            + at_stake
        )

    def _start_texts(self) -> tuple[str, str]:
        """Minutes from the disk and from memory, in proportion to what was measured; "" for less than one."""
        share = self.weights_bytes / MEASURED_BYTES
        if COLD_MIN * share < 1:
            return "", ""
        low, high = (each * share for each in WARM_MIN)
        return f"{COLD_MIN * share:.0f}", f"{low:.0f}-{high:.0f}"
