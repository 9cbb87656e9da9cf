"""What a rule is: a name, a level, and a check that finds faults in a profile; with the look-ups that checks share."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from k3deploy.domain.faults import Fault, Level, Path
from k3deploy.domain.profile.models import FlagValue, Pool, Profile

Check = Callable[[Profile], Iterable[Fault]]


@dataclass(frozen=True)
class Rule:
    """`check` yields faults without `at` and level: the table adds both."""

    name: str
    level: Level
    check: Check


def pools(profile: Profile) -> Iterator[tuple[Path, Pool]]:
    """Each pool with its path."""
    for index, pool in enumerate(profile.pools):
        yield ("pools", index), pool


def parallel_path(pool_path: Path, size: str) -> Path:
    return (*pool_path, "replicas", "parallel", size)


def flags_of(profile: Profile, pool: Pool) -> dict[str, FlagValue]:
    """The engine's flags with the pool's on top: what a replica of this pool is started with."""
    return {**profile.engine.flags, **pool.flags}


def flag_path(pool_path: Path, pool: Pool, name: str) -> Path:
    """Where a flag that counts for a pool is, or would be, written."""
    return (*pool_path, "flags", name) if name in pool.flags else ("engine", "flags", name)


def is_on(value: FlagValue | None) -> bool:
    """Whether a switch is given."""
    return value is True
