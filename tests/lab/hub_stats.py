"""What the Hub has served: bytes and requests, by file and by client."""

import threading
from collections import Counter, defaultdict
from typing import Any


class Stats:
    """Bytes and requests by file and by client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begin again at nothing."""
        self._requests: dict[str, Counter[str]] = {"files": Counter(), "clients": Counter(), "methods": Counter()}
        self._bytes: dict[str, Counter[str]] = {"files": Counter(), "clients": Counter()}
        self._shares: dict[str, Counter[str]] = defaultdict(Counter)

    def asked(self, method: str, client: str, file: str | None) -> None:
        """Count a request."""
        with self._lock:
            self._requests["methods"][method] += 1
            self._requests["clients"][client] += 1
            if file is not None:
                self._requests["files"][file] += 1

    def sent(self, count: int, client: str, file: str) -> None:
        """Count bytes of a body, as they go."""
        with self._lock:
            self._bytes["files"][file] += count
            self._bytes["clients"][client] += count
            self._shares[file][client] += count

    def document(self) -> dict[str, Any]:
        """Everything that was counted."""
        with self._lock:
            groups = {
                group: {
                    name: {"requests": self._requests[group][name], "bytes": self._bytes[group][name]}
                    for name in sorted(self._requests[group])
                }
                for group in ("files", "clients")
            }
            return {
                "requests": sum(self._requests["methods"].values()),
                "bytes": sum(self._bytes["clients"].values()),
                "methods": dict(self._requests["methods"]),
                **groups,
                # Of a file's bytes, which client got how many.
                "shares": {file: dict(clients) for file, clients in sorted(self._shares.items())},
            }
