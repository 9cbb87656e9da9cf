"""A store whose writes stay in memory: what a dry run sees is real, what it writes is gone with it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from k3deploy.contracts import Store, Stored
from k3deploy.domain.errors import StoreConflict
from k3deploy.domain.store_keys import check_key


@dataclass
class OverlayStore:
    """Reads fall through to `base` until the key was written or deleted here. Same conflicts as any store."""

    base: Store
    _own: dict[str, bytes | None] = field(default_factory=dict)  # None: deleted here
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def get(self, key: str) -> Stored | None:
        check_key(key)
        with self._lock:
            if key not in self._own:
                return self.base.get(key)
            data = self._own[key]
            return None if data is None else Stored(data, _tag(data))

    def put(self, key: str, data: bytes) -> str:
        check_key(key)
        with self._lock:
            self._own[key] = data
            return _tag(data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        with self._lock:
            if self.get(key) is not None:
                raise _conflict(key, "it exists already")
            return self.put(key, data)

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        with self._lock:
            current = self.get(key)
            if current is None or current.tag != tag:
                raise _conflict(key, "it was changed meanwhile")
            return self.put(key, data)

    def list(self, prefix: str) -> Sequence[str]:
        with self._lock:
            below = set(self.base.list(prefix)) - self._own.keys()
            here = {key for key, data in self._own.items() if data is not None and key.startswith(prefix)}
            return sorted(below | here)

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            self._own[key] = None

    def describe(self) -> str:
        return f"{self.base.describe()} (dry run: nothing is written)"


def _tag(data: bytes) -> str:
    return "overlay-" + sha256(data).hexdigest()


def _conflict(key: str, why: str) -> StoreConflict:
    return StoreConflict(what=f"{key} was not written", why=why, fix="read it again", context={"key": key})
