"""Facts settled once per run (image digest, manifest): the store's conditional write decides who was first."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from k3deploy.contracts import Store
from k3deploy.domain.errors import StoreConflict, StoreError
from k3deploy.domain.run import Keys


@dataclass(frozen=True)
class StorePins:
    """What was settled is read from the store once: it never changes, and every unit asks for it several times."""

    store: Store
    keys: Keys
    _known: dict[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

    def get(self, name: str) -> Mapping[str, Any] | None:
        if name in self._known:
            return self._known[name]
        stored = self.store.get(self.keys.pin(name))
        if stored is None:
            return None
        value = self._parse(name, stored.data)
        self._known[name] = value
        return value

    def settle(self, name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the value unless somebody already did; return what counts from now on."""
        try:
            self.store.put_if_absent(self.keys.pin(name), json.dumps(dict(value), sort_keys=True).encode())
        except StoreConflict:
            settled = self.get(name)
            if settled is None:
                raise
            return settled
        self._known[name] = value
        return value

    def _parse(self, name: str, data: bytes) -> Mapping[str, Any]:
        key = self.keys.pin(name)
        try:
            value = json.loads(data)
        except ValueError as err:
            raise self._damaged(key, str(err)) from err
        if not isinstance(value, dict):
            raise self._damaged(key, f"it holds a {type(value).__name__}, not keys and values")
        return value

    def _damaged(self, key: str, why: str) -> StoreError:
        return StoreError(
            what=f"{key} is damaged",
            why=f"{why}; the run settled this fact once and requires it on every node",
            fix="restore the object, or remove it: `k3deploy up` then settles the fact anew",
            context={"store": self.store.describe()},
        )
