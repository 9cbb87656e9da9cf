"""A Store in memory with atomic conditional writes."""

import threading
from collections.abc import Sequence

from k3deploy.contracts import Stored
from k3deploy.domain.errors import StoreConflict
from k3deploy.domain.store_keys import check_key


class MemoryStore:
    """Tags never repeat, so a value that was changed and changed back is still another one."""

    def __init__(self) -> None:
        self._objects: dict[str, Stored] = {}
        self._writes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> Stored | None:
        check_key(key)
        return self._objects.get(key)

    def put(self, key: str, data: bytes) -> str:
        check_key(key)
        with self._lock:
            return self._write(key, data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        check_key(key)
        with self._lock:
            if key in self._objects:
                raise _conflict(key, "it exists already")
            return self._write(key, data)

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        check_key(key)
        with self._lock:
            current = self._objects.get(key)
            if current is None:
                raise _conflict(key, "it is gone")
            if current.tag != tag:
                raise _conflict(key, "it has changed since it was read")
            return self._write(key, data)

    def list(self, prefix: str) -> Sequence[str]:
        return sorted(key for key in tuple(self._objects) if key.startswith(prefix))

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            self._objects.pop(key, None)

    def describe(self) -> str:
        return "memory"

    def _write(self, key: str, data: bytes) -> str:
        self._writes += 1
        tag = f"v{self._writes}"
        self._objects[key] = Stored(bytes(data), tag)
        return tag


def _conflict(key: str, why: str) -> StoreConflict:
    return StoreConflict(
        what=f"{key} was not written to memory",
        why=why,
        fix="read it again and decide anew",
        context={"key": key},
    )
