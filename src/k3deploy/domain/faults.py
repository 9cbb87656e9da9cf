"""One thing that is wrong in a file a person wrote: where, what was found, what is wanted, what to write instead."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from k3deploy.domain.errors import ProfileError, ProfileFaults
from k3deploy.domain.secret_text import looks_secret, without_secrets

Path = tuple[str | int, ...]
_SHOWN_CHARACTERS = 60


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Fault:
    """`at` is "file:line", or the option of the command line. `found` and `wanted` are already text for people."""

    what: str
    fix: str
    path: Path = ()
    at: str = ""
    found: str = ""
    wanted: str = ""
    why: str = ""
    level: Level = Level.ERROR

    def as_error(self) -> ProfileError:
        return ProfileError(what=self.what, why=self.why, fix=self.fix, context=self.context())

    def context(self) -> dict[str, object]:
        facts = {"at": self.at, "path": path_text(self.path), "found": self.found, "wanted": self.wanted}
        return {name: value for name, value in facts.items() if value}

    def as_dict(self) -> dict[str, object]:
        """The shape of a warning in `--output json`: that of an error, with its level."""
        return {
            "level": str(self.level),
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
            "context": self.context(),
        }


def raise_if_any(faults: Sequence[Fault], where: str) -> None:
    """Raise ProfileError for one fault, ProfileFaults for several, nothing for none. Warnings do not count."""
    errors = [fault.as_error() for fault in faults if fault.level is Level.ERROR]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ProfileFaults(
            failures=errors,
            what=f"{where} has {len(errors)} faults",
            fix="correct them and try again; nothing was touched",
        )


def path_text(path: Path) -> str:
    """`pools[0].replicas.nodes_each`: also what `--set` takes."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def shown(value: object, name: str = "") -> str:
    """A found value for a message: short, on one line, quoted when it is text, and never a secret."""
    if looks_secret(name, value):
        return "***"
    text = without_secrets(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
