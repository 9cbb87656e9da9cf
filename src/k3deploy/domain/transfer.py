"""The weights on their way: what units say of the bytes that they fetch, hash or read, one by one and together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from k3deploy.domain.run_state import Unit

# What each phase that counts such bytes does to them.
DOES: Final = {
    "weights-fetch": "fetched",
    "weights-verify": "hashed",
    "verify-shards": "hashed",
    "weights-warm": "read into memory",
}


@dataclass(frozen=True)
class Transfer:
    """One node's. Numbers that a job measured itself win over what is told by its count as it grows here."""

    unit: Unit
    done_bytes: float
    total_bytes: float

    @staticmethod
    def of(unit: Unit) -> "Transfer | None":
        """None for a unit that counts no bytes of the weights, or not yet."""
        if unit.phase not in DOES or unit.done is None or not unit.total:
            return None
        is_through = not unit.step and unit.status != "failed"  # it spoke last a moment before its end
        return Transfer(unit, unit.total if is_through else unit.done, unit.total)

    @property
    def is_running(self) -> bool:
        return self.unit.status == "running" and bool(self.unit.step)

    @property
    def share(self) -> float:
        return min(1.0, self.done_bytes / self.total_bytes)

    @property
    def percent(self) -> int:
        """Whole ones: 100 is said when nothing is left."""
        return int(100 * self.share)

    def number(self, name: str) -> float | None:
        """By the name that the job gave it; None where it did not say, or does not know yet."""
        return self.unit.numbers.get(name)

    @property
    def rate_bps(self) -> float | None:
        """Bytes a second."""
        hub_bps = self.number("hub_bps")
        return self.unit.pace.per_s if hub_bps is None else hub_bps + (self.number("peer_bps") or 0.0)

    @property
    def eta_s(self) -> float | None:
        told_s, rate_bps = self.number("eta_s"), self.rate_bps
        if told_s is not None:
            return told_s
        return (self.total_bytes - self.done_bytes) / rate_bps if rate_bps else None


@dataclass(frozen=True)
class Total:
    """All nodes of one phase together, those that have ended among them. At least one is at work."""

    transfers: tuple[Transfer, ...]

    @staticmethod
    def of(units: Iterable[Unit], phase: str) -> "Total | None":
        """None when nothing of this phase is at work."""
        found = [Transfer.of(unit) for unit in units if unit.phase == phase]
        known = tuple(transfer for transfer in found if transfer is not None)
        return Total(known) if any(transfer.is_running for transfer in known) else None

    @property
    def running(self) -> tuple[Transfer, ...]:
        return tuple(transfer for transfer in self.transfers if transfer.is_running)

    @property
    def done_bytes(self) -> float:
        return sum(transfer.done_bytes for transfer in self.transfers)

    @property
    def total_bytes(self) -> float:
        return sum(transfer.total_bytes for transfer in self.transfers)

    @property
    def has_peers(self) -> bool:
        """Whether nodes give bytes to each other."""
        return any(transfer.number("peer_bytes") for transfer in self.transfers)

    def rate_bps(self, name: str) -> float | None:
        """The sum of what the nodes at work say under this name; None where one of them does not say."""
        return _sum(transfer.number(name) for transfer in self.running)

    @property
    def counted_bps(self) -> float | None:
        return _sum(transfer.rate_bps for transfer in self.running)

    @property
    def eta_s(self) -> float | None:
        """Together they are done when the last one is."""
        etas_s = [transfer.eta_s for transfer in self.running]
        known_s = [eta_s for eta_s in etas_s if eta_s is not None]
        return max(known_s) if len(known_s) == len(etas_s) else None

    def worst(self, name: str) -> float | None:
        """The greatest of what the nodes at work say under this name; None where none of them does."""
        return max((value for each in self.running if (value := each.number(name))), default=None)

    @property
    def bound_s(self) -> float | None:
        """What the links allow at best, as the nodes measured them."""
        return self.worst("bound_s")

    @property
    def times_bound(self) -> float | None:
        """The whole transfer's time over its bound, if it goes on as it does now."""
        spent_s = self.worst("elapsed_s")
        if spent_s is None or self.eta_s is None or self.bound_s is None:
            return None
        return (spent_s + self.eta_s) / self.bound_s


def _sum(rates_bps: Iterable[float | None]) -> float | None:
    known = list(rates_bps)
    return None if None in known else sum(rate_bps for rate_bps in known if rate_bps is not None)
