"""A run: one profile on certain machines, from the first `up` to the end of its teardown. Record and store keys."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from k3deploy.domain.names import PhaseName, RunId

SCHEMA: Final = 1
RECORDS: Final = "records/"
State = Literal["live", "torn-down"]


@dataclass(frozen=True)
class RunRecord:
    """`records/<run>.json`. `addresses`: node name -> what nodes.yaml said; decides which runs share machines."""

    run_id: RunId
    profile: str
    addresses: Mapping[str, str]
    created_at: float
    usd_per_hour: float | None
    state: State = "live"
    ended_at: float | None = None

    @property
    def is_live(self) -> bool:
        return self.state == "live"

    def shares_machines(self, addresses: Iterable[str]) -> bool:
        return not set(self.addresses.values()).isdisjoint(addresses)

    def torn_down(self, at: float) -> "RunRecord":
        return replace(self, state="torn-down", ended_at=at)

    def to_json(self) -> bytes:
        return json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True, indent=1).encode()

    @staticmethod
    def from_json(data: bytes) -> "RunRecord":
        """Raises ValueError when the record is of a newer schema or not a record."""
        body: Any = json.loads(data)
        if not isinstance(body, dict) or body.pop("schema", None) != SCHEMA:
            raise ValueError("run record of another schema")
        return RunRecord(**body)


def new_run_id(profile: str, now: float, entropy: str) -> RunId:
    """`<profile>-<UTC date>-<time>-<4 hex>`: sorts by age within a profile and names the profile in every listing."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    return RunId(f"{profile}-{stamp}-{entropy[:4]}")


@dataclass(frozen=True)
class Keys:
    """Where each thing of a run is kept in the store."""

    run: RunId

    @property
    def record(self) -> str:
        """Apart from the run's own folder, so that listing runs does not list their events."""
        return f"{RECORDS}{self.run}.json"

    @property
    def profile_lock(self) -> str:
        return f"runs/{self.run}/profile.lock.yaml"

    @property
    def nodes_lock(self) -> str:
        return f"runs/{self.run}/nodes.lock.json"

    @property
    def events(self) -> str:
        return f"runs/{self.run}/events/"

    def event_batch(self, seq: int) -> str:
        return f"{self.events}{seq:08d}.jsonl"

    def marker(self, phase: PhaseName, target: str) -> str:
        return f"runs/{self.run}/phases/{phase}/{target}.json"

    def pin(self, name: str) -> str:
        return f"runs/{self.run}/pins/{name}.json"

    def artifact(self, path: str) -> str:
        return f"runs/{self.run}/artifacts/{path}"


def cost_usd(usd_per_hour: float | None, seconds: float) -> float | None:
    """Dollars for a time; None when the price is unknown."""
    return None if usd_per_hour is None else usd_per_hour * seconds / 3600
