"""The runs that a store knows: create, list, find the one that is meant, mark it torn down."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from k3deploy.contracts import Store
from k3deploy.domain.errors import StoreError, UsageError
from k3deploy.domain.names import RunId
from k3deploy.domain.run import RECORDS, Keys, RunRecord
from k3deploy.domain.store_keys import is_key


@dataclass(frozen=True)
class Runs:
    store: Store

    def create(self, record: RunRecord, *, profile_lock: str, nodes_lock: Mapping[str, object]) -> None:
        """Write the record last: a run exists once its lock and its nodes are there."""
        keys = Keys(record.run_id)
        self.store.put_if_absent(keys.profile_lock, profile_lock.encode())
        self.store.put_if_absent(keys.nodes_lock, _nodes_text(nodes_lock))
        self.store.put_if_absent(keys.record, record.to_json())

    def get(self, run_id: str) -> RunRecord:
        """Raises UsageError for an id that the store does not know."""
        key = Keys(RunId(run_id)).record
        stored = self.store.get(key) if is_key(key) else None
        if stored is None:
            known = [record.run_id for record in self.all()]
            raise UsageError(
                what=f"no run is called {run_id!r}",
                fix="`k3deploy runs list` shows them" if known else "start one with `k3deploy up --profile NAME`",
                context={"found": ", ".join(known) or "no runs", "store": self.store.describe()},
            )
        return _parse(stored.data, run_id)

    def all(self) -> Sequence[RunRecord]:
        """Every run, newest first."""
        found = [(key, self.store.get(key)) for key in self.store.list(RECORDS)]
        records = [_parse(stored.data, key) for key, stored in found if stored is not None]
        return sorted(records, key=lambda record: record.created_at, reverse=True)

    def of(self, addresses: Iterable[str] | None) -> Sequence[RunRecord]:
        """The runs that share machines with the given addresses (all runs when None), newest first."""
        wanted = None if addresses is None else set(addresses)
        return [record for record in self.all() if wanted is None or record.shares_machines(wanted)]

    def latest(self, addresses: Iterable[str] | None) -> RunRecord:
        """The newest live run, else the newest one. Raises UsageError when there is none."""
        known = self.of(addresses)
        live = [record for record in known if record.is_live]
        if not known:
            raise UsageError(
                what="there is no run yet" + ("" if addresses is None else " on these nodes"),
                fix="start one with `k3deploy up --profile NAME`",
                context={"store": self.store.describe()},
            )
        return (live or known)[0]

    def update(self, record: RunRecord, *, profile_lock: str, nodes_lock: Mapping[str, object]) -> None:
        """Bring the locks and the record up to date: an edited profile, a digest that was settled, a new address.

        Raises StoreConflict when somebody else does so at this very moment.
        """
        keys = Keys(record.run_id)
        self._bring(keys.profile_lock, profile_lock.encode())
        self._bring(keys.nodes_lock, _nodes_text(nodes_lock))
        self._bring(keys.record, record.to_json())

    def _bring(self, key: str, data: bytes) -> None:
        current = self.store.get(key)
        if current is None:
            self.store.put_if_absent(key, data)
        elif current.data != data:
            self.store.put_if_match(key, data, current.tag)

    def mark_torn_down(self, run_id: RunId, at: float) -> None:
        key = Keys(run_id).record
        current = self.store.get(key)
        if current is None:
            raise StoreError(
                what=f"the record of run {run_id} is gone from {self.store.describe()}",
                fix="look at the store: somebody removed it while the run was live",
            )
        record = _parse(current.data, key)
        if record.is_live:
            self.store.put_if_match(key, record.torn_down(at).to_json(), current.tag)


def _nodes_text(nodes_lock: Mapping[str, object]) -> bytes:
    return json.dumps(nodes_lock, sort_keys=True, indent=1).encode()


def _parse(data: bytes, where: str) -> RunRecord:
    try:
        return RunRecord.from_json(data)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            what=f"cannot read the run record {where}",
            why=str(error),
            fix="it was written by a newer k3deploy, or damaged: use the version that wrote it",
        ) from error
