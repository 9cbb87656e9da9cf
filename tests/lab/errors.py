"""What a person reads when the lab fails: what happened, why, and what to do about it."""

from __future__ import annotations


class LabError(Exception):
    """A failure of the lab itself, never of the program under test."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"why: {self.why}")
        if self.fix:
            lines.append(f"fix: {self.fix}")
        return "\n".join(lines)
