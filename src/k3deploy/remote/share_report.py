"""What a node tells the tracker, checked: numbers from the network decide who fetches what."""

import json
import math
import re
from collections.abc import Collection
from typing import Any, NamedTuple

STRATEGIES = ("swarm", "auto")
# More files at a time than any link needs, and more bytes (a second) than any node has.
_MOST_ROOM = 64
_MOST_AMOUNT = 1e18
_INDEX = re.compile("[0-9]{1,9}")  # int() takes other alphabets' digits too, and refuses some thousands of them


class BadReport(Exception):
    """The text names the field that makes no sense."""


class Report(NamedTuple):
    """One node's word on itself. Files are named by their index in the manifest; rates are bytes a second.

    `leases`: files that it fetches from the origin, with the bytes that have landed; `room`: how many more it would
    start; `failed`: leases that it gives back; `pulling`: files on their way from peers; `cut_off`: files that it can
    have from none of their holders. A rate is None until it is known: of the seconds in which something was under way.
    """

    node: str
    strategy: str
    held: frozenset[int]
    leases: dict[int, int]
    room: int
    hub_bps: float | None
    lan_bps: float | None
    disk_bps: float | None
    lan_backlog_bytes: int
    hub_bytes: int
    failed: frozenset[int]
    pulling: frozenset[int]
    cut_off: frozenset[int]


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object without NaN and the like. Raises BadReport."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"it is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise BadReport("it is no JSON object")
    return value


def parse_report(body: dict[str, Any], files: Collection[int]) -> Report:
    """Raises BadReport. `files`: the indexes that may be spoken of."""
    read = _Fields(body, files)
    return Report(
        node=read.text("node"),
        strategy=read.text("strategy", "swarm", STRATEGIES),
        held=read.indexes("held"),
        leases=read.landed("leases"),
        room=min(read.count("room"), _MOST_ROOM),
        hub_bps=read.rate("hub_bps"),
        lan_bps=read.rate("lan_bps"),
        disk_bps=read.rate("disk_bps"),
        lan_backlog_bytes=read.count("lan_backlog_bytes"),
        hub_bytes=read.count("hub_bytes"),
        failed=read.indexes("failed"),
        pulling=read.indexes("pulling"),
        cut_off=read.indexes("cut_off"),
    )


class _Fields:
    """An absent field means none, nothing or unknown; one that is there must be of its kind."""

    def __init__(self, body: dict[str, Any], files: Collection[int]) -> None:
        self._body = body
        self._files = files

    def text(self, name: str, default: str = "", known: tuple[str, ...] = ()) -> str:
        value = self._body.get(name, default)
        if not isinstance(value, str) or (known and value not in known):
            raise BadReport(f"{name}: {value!r}"[:200])
        return value

    def count(self, name: str) -> int:
        return int(self._amount(name, self._body.get(name, 0)))

    def rate(self, name: str) -> float | None:
        value = self._body.get(name)
        return None if value is None else self._amount(name, value) or None

    def indexes(self, name: str) -> frozenset[int]:
        value = self._body.get(name, [])
        if not isinstance(value, list):
            raise BadReport(f"{name}: no list")
        return frozenset(self._index(name, each) for each in value)

    def landed(self, name: str) -> dict[int, int]:
        value = self._body.get(name, {})
        if not isinstance(value, dict):
            raise BadReport(f"{name}: no object")
        numbers = {int(key): amount for key, amount in value.items() if _INDEX.fullmatch(key)}
        if len(numbers) != len(value):
            raise BadReport(f"{name}: its keys are no indexes")
        return {self._index(name, key): int(self._amount(name, amount)) for key, amount in numbers.items()}

    def _index(self, name: str, value: Any) -> int:
        if type(value) is not int or value not in self._files:
            raise BadReport(f"{name}: {value!r} is no file of this manifest"[:200])
        return value

    def _amount(self, name: str, value: Any) -> float:
        if type(value) not in (int, float) or not 0 <= value <= _MOST_AMOUNT or not math.isfinite(value):
            raise BadReport(f"{name}: {value!r}"[:200])
        return float(value) if isinstance(value, float) else value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
