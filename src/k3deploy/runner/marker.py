"""Markers: what a finished (phase, target) left in the store. A hint that saves work; the node stays the truth."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.contracts import Store
from k3deploy.domain.names import InputsDigest, PhaseName
from k3deploy.domain.run import Keys

SCHEMA: Final = 1


@dataclass(frozen=True)
class Marker:
    """`evidence` is what verify read back when the unit was done: the report and later phases use it."""

    inputs: InputsDigest
    summary: str
    evidence: Mapping[str, Any]
    finished_at: float


@dataclass(frozen=True)
class Markers:
    store: Store
    keys: Keys

    def get(self, phase: PhaseName, target: str) -> Marker | None:
        """None when there is none, or it is damaged or of another schema: then the work is looked at afresh."""
        stored = self.store.get(self.keys.marker(phase, target))
        if stored is None:
            return None
        try:
            body = json.loads(stored.data)
            if body["schema"] != SCHEMA:
                return None
            return Marker(InputsDigest(body["inputs"]), body["summary"], body["evidence"], body["finished_at"])
        except (ValueError, TypeError, KeyError):
            return None

    def put(self, phase: PhaseName, target: str, marker: Marker) -> None:
        body = {
            "schema": SCHEMA,
            "phase": phase,
            "target": target,
            "inputs": marker.inputs,
            "summary": marker.summary,
            "evidence": dict(marker.evidence),
            "finished_at": marker.finished_at,
        }
        self.store.put(self.keys.marker(phase, target), json.dumps(body, sort_keys=True).encode())
