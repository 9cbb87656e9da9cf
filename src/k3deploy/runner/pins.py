"""Facts settled once per run (image digest, manifest): the store's conditional write decides who was first."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from k3deploy.contracts import Store
from k3deploy.domain.errors import StoreConflict
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
        value: dict[str, Any] = json.loads(stored.data)
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
