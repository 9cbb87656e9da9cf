"""The last words of `teardown`: what was done, what the run took and cost, which machines still bill."""

from dataclasses import dataclass
from typing import Any

from k3deploy.domain.holdings import TeardownOptions
from k3deploy.domain.run import RunRecord, cost_usd
from k3deploy.domain.run_state import RunState
from k3deploy.domain.units import duration_text, usd_text


@dataclass(frozen=True)
class TornDown:
    record: RunRecord
    state: RunState
    options: TeardownOptions
    store: str
    now: float

    @property
    def run_s(self) -> float:
        return (self.record.ended_at or self.now) - self.record.created_at

    def as_dict(self) -> dict[str, Any]:
        cost = cost_usd(self.record.usd_per_hour, self.run_s)
        return {
            "run_id": self.record.run_id,
            "is_confirmed": True,
            "outcome": self.state.outcome,
            "has_changed": self.state.has_changed,
            "units": {f"{unit.phase}/{unit.target}": unit.message for unit in self.state.units.values()},
            "logs": f"{self.store}: runs/{self.record.run_id}/artifacts/logs/",
            "run_s": round(self.run_s, 1),
            "cost_usd": None if cost is None else round(cost, 2),
            "usd_per_hour": self.record.usd_per_hour,
            "still_billing": dict(self.record.addresses),
        }

    def text(self) -> str:
        kept = [] if self.options.purges_weights else ["the weights stay on the nodes (--purge-weights removes them)"]
        kept += (
            [] if self.options.restores else ["Docker and the cache stay where the run put them (--restore undoes it)"]
        )
        return "\n".join(
            [
                f"run {self.record.run_id} is torn down; its logs are in {self.store}",
                *kept,
                *self._read_back(),
                self._cost(),
                *billing_lines(self.record),
            ]
        )

    def _read_back(self) -> list[str]:
        """What was found on the nodes at the very end, the same words of several nodes on one line."""
        nodes: dict[str, list[str]] = {}
        for unit in (*self.state.phase("prove-free"), *self.state.phase("release")):
            nodes.setdefault(unit.message, []).append(unit.target)
        return [f"read back: {message} ({', '.join(sorted(targets))})" for message, targets in nodes.items()]

    def _cost(self) -> str:
        cost = cost_usd(self.record.usd_per_hour, self.run_s)
        spent = "the profile names no price" if cost is None else usd_text(cost)
        return f"the run took {duration_text(self.run_s)}: {spent}"


def billing_lines(record: RunRecord) -> list[str]:
    """The machines by name and address, their price, and how to end it: a torn down run is no deleted machine."""
    count = len(record.addresses)
    rate = "" if record.usd_per_hour is None else f": {usd_text(record.usd_per_hour)}/h"
    machines = f"{count} machine{'s' if count != 1 else ''}"
    return [
        f"{machines} still bill{'s' if count == 1 else ''} until deleted{rate}",
        *(f"  {name}  {address}" for name, address in record.addresses.items()),
        "delete them in your provider's console or by its API, then check there that none of these addresses is listed",
    ]
