"""Do the weights fit the GPUs' memory, before a byte is fetched? Reported memory counts, never the marketing figure."""

from collections.abc import Iterator

from k3deploy.domain.faults import Fault, Level
from k3deploy.domain.profile.models import Pool, Profile
from k3deploy.domain.profile.rule import Rule, flags_of, parallel_path, pools

# SGLang's fallback when nothing decides the static fraction (0.5.23).
_DEFAULT_FRACTION = 0.9
# Key-value cache and state below which no useful request fits; and room below which a start is a close call:
# on 32 x H100 (8.4 GB here) the caches took 7.03 GiB and held 49 requests or 140,352 tokens.
_RESERVE_BYTES = 3_000_000_000
_TIGHT_BYTES = 12_000_000_000

_SHAPES = "1x8 B300, 2x8 B200, 2x8 H200, 4x8 H100, 4x4 GB200, 2x4 GB300"


def weights_bytes_per_gpu(profile: Profile, pool: Pool) -> float:
    """Computed, not measured: the GPU's share, what every GPU holds whole, and attention kept once per group."""
    sizes = pool.replicas.parallel
    world = sizes.tensor * sizes.pipeline
    geometry = profile.model.geometry
    share = profile.model.shard_bytes / world
    copies = geometry.attention_bytes * (sizes.attention_data - 1) / world
    return share + geometry.replicated_bytes + copies


def room_bytes_per_gpu(profile: Profile, pool: Pool) -> float:
    """What the static part of a GPU's memory has left for caches."""
    memory_bytes = profile.hardware.gpu.memory_mib_min * 2**20
    return _fraction(profile, pool) * memory_bytes - weights_bytes_per_gpu(profile, pool)


def _fraction(profile: Profile, pool: Pool) -> float:
    value = flags_of(profile, pool).get("mem-fraction-static")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _DEFAULT_FRACTION


def fraction_in_range(profile: Profile) -> Iterator[Fault]:
    for path, pool in pools(profile):
        if not 0 < _fraction(profile, pool) < 1:
            yield Fault(
                "mem-fraction-static is a part of the memory",
                "write a number like 0.85",
                path=(*path, "flags", "mem-fraction-static")
                if "mem-fraction-static" in pool.flags
                else ("engine", "flags", "mem-fraction-static"),
                found=str(_fraction(profile, pool)),
                wanted="more than 0, less than 1",
            )


def fits(profile: Profile) -> Iterator[Fault]:
    memory_mib = profile.hardware.gpu.memory_mib_min
    for path, pool in pools(profile):
        fraction = _fraction(profile, pool)
        if not 0 < fraction < 1 or room_bytes_per_gpu(profile, pool) >= _RESERVE_BYTES:
            continue
        sizes = pool.replicas.parallel
        limit = fraction * memory_mib * 2**20 - _RESERVE_BYTES
        yield Fault(
            f"the weights do not fit: {sizes.tensor * sizes.pipeline} GPUs of {memory_mib} MiB in pool {pool.name}",
            "spread a replica over more GPUs, or take larger ones",
            path=parallel_path(path, "tensor"),
            found=f"{weights_bytes_per_gpu(profile, pool) / 1e9:.1f} GB of weights on each GPU",
            wanted=f"at most {limit / 1e9:.1f} GB: {fraction:g} of the memory, less 3 GB for caches",
            why=f"shapes reported to work: {_SHAPES}",
        )


def fits_with_room(profile: Profile) -> Iterator[Fault]:
    for path, pool in pools(profile):
        room = room_bytes_per_gpu(profile, pool)
        if _RESERVE_BYTES <= room < _TIGHT_BYTES and 0 < _fraction(profile, pool) < 1:
            yield Fault(
                f"pool {pool.name} fits tightly: about {room / 1e9:.1f} GB on each GPU for caches",
                "expect few requests at a time, and a longest request far below the model's context",
                path=parallel_path(path, "tensor"),
                found=f"{weights_bytes_per_gpu(profile, pool) / 1e9:.1f} GB of weights on each GPU (computed)",
            )


FIT_RULES = (
    Rule("fraction-in-range", Level.ERROR, fraction_in_range),
    Rule("fits", Level.ERROR, fits),
    Rule("fits-with-room", Level.WARNING, fits_with_room),
)
