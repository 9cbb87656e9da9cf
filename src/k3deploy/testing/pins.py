"""Pins in memory: the first writer wins, everybody gets the winner's value."""

import json
import threading
from collections.abc import Mapping
from typing import Any


class MemoryPins:
    """Values are kept as JSON, as the real ones are: what JSON cannot carry fails here too."""

    def __init__(self, **settled: Mapping[str, Any]) -> None:
        self._texts = {name: json.dumps(value) for name, value in settled.items()}
        self._lock = threading.Lock()

    def get(self, name: str) -> Mapping[str, Any] | None:
        text = self._texts.get(name)
        return None if text is None else _parsed(text)

    def settle(self, name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            return _parsed(self._texts.setdefault(name, json.dumps(value)))


def _parsed(text: str) -> Mapping[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value
