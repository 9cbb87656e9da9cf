"""What the Hub was told to do wrong, changed while it runs by POST /__lab__/faults.

The document has switches and rules; posting `{}` ends all trouble.

- `gated`, `require_token`: switches; `redirect`: large files answer 302 to another path, as behind a CDN
- `renamed`: `{"from": old, "to": new}`: whoever asks for the old name is sent (307) to the new one
- `main`: the commit that the branch has moved to (the files stay)
- `rules`: a list; each has a `kind`, may have `match` (a pattern on the file's name, or on the whole path of an API
  call), `client` (an address), `method` and `times` (how often it acts; without it, always)
  - `{"kind": "cut", "after_bytes": n}`: the connection ends after n bytes of the body; with `"reset": true`, by a reset
  - `{"kind": "status", "code": 429, "retry_after": 1}`: an error instead of an answer
  - `{"kind": "slow", "bytes_per_s": n}`
  - `{"kind": "corrupt"}`: one wrong byte in the middle, the length is right
  - `{"kind": "drop"}`: the connection closes without an answer
  - `{"kind": "stall", "seconds": s}`: silence before the answer
"""

import fnmatch
import threading
from dataclasses import dataclass
from typing import Any

KINDS = ("cut", "status", "slow", "corrupt", "drop", "stall")
SWITCHES = ("gated", "require_token", "redirect", "renamed", "main")


class FaultError(ValueError):
    """The posted document can't be understood."""


@dataclass
class Rule:
    """One rule, with the number of times that it still acts."""

    kind: str
    told: dict[str, Any]
    left: int | None

    def fits(self, *, name: str, client: str, method: str) -> bool:
        """Whether it is about this request."""
        return (
            self.left != 0
            and fnmatch.fnmatchcase(name, self.told.get("match", "*"))
            and self.told.get("client", client) == client
            and self.told.get("method", method) == method
        )


class Faults:
    """The document in force."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[str, Any] = {}
        self._rules: list[Rule] = []

    def replace(self, told: dict[str, Any]) -> None:
        """Put another document in force; raises FaultError and keeps the old one when it makes no sense."""
        unknown = set(told) - {*SWITCHES, "rules"}
        if unknown:
            raise FaultError(f"unknown keys {sorted(unknown)}, known are {sorted((*SWITCHES, 'rules'))}")
        rules = []
        for rule in told.get("rules", []):
            if rule.get("kind") not in KINDS:
                raise FaultError(f"unknown kind {rule.get('kind')!r}, known are {list(KINDS)}")
            rules.append(Rule(rule["kind"], rule, rule.get("times")))
        with self._lock:
            self._told, self._rules = dict(told), rules

    def document(self) -> dict[str, Any]:
        """What is in force, with the times that are left."""
        with self._lock:
            rules = [{**rule.told, "times": rule.left} if rule.left is not None else rule.told for rule in self._rules]
            return {**self._told, "rules": rules}

    def switch(self, name: str) -> Any:
        """The value of a switch, None when it is not set."""
        with self._lock:
            return self._told.get(name)

    def take(self, kind: str, *, name: str, client: str, method: str) -> dict[str, Any] | None:
        """The first rule of this kind that fits, counted as used."""
        with self._lock:
            for rule in self._rules:
                if rule.kind == kind and rule.fits(name=name, client=client, method=method):
                    if rule.left is not None:
                        rule.left -= 1
                    return rule.told
        return None
