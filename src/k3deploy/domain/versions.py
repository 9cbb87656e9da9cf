"""Engine versions and ranges of them: enough of PEP 440 to say whether an image's engine is one a profile allows."""

import re
from dataclasses import dataclass
from functools import total_ordering

_VERSION = re.compile(
    r"v?(?P<release>\d+(\.\d+)*)(?P<pre>[-._]?(a|b|rc)\d+)?(?P<post>[-._]?post\d+)?(?P<dev>[-._]?dev\d*)?(\+[\w.-]+)?"
)
_CLAUSE = re.compile(r"(?P<operator>>=|<=|==|!=|>|<)\s*(?P<version>\S+)")


@total_ordering
@dataclass(frozen=True)
class Version:
    """Ordered as PEP 440 orders: 0.6.dev1 < 0.6rc1 < 0.6 < 0.6.post1; a local part (+g1234) does not count."""

    text: str
    key: tuple[tuple[int, ...], tuple[int, ...]]

    @staticmethod
    def parse(text: str) -> "Version":
        """Raises ValueError for text that is no version."""
        found = _VERSION.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"not a version: {text!r}")
        release = [int(part) for part in found["release"].split(".")]
        while len(release) > 1 and release[-1] == 0:
            release.pop()  # 0.6 and 0.6.0 are the same
        return Version(text.strip(), (tuple(release), _suffix_key(found["pre"], found["post"], found["dev"])))

    def __lt__(self, other: "Version") -> bool:
        return self.key < other.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.text


def _suffix_key(pre: str | None, post: str | None, dev: str | None) -> tuple[int, ...]:
    stage = 0
    number = 0
    if pre is not None:
        letters = re.sub(r"[^a-z]", "", pre)
        stage, number = {"a": -3, "b": -2, "rc": -1}[letters], _digits(pre)
    elif dev is not None and post is None:
        stage = -4
    return (stage, number, _digits(post) if post else -1, _digits(dev) if dev is not None else 1 << 30)


def _digits(text: str) -> int:
    return int(re.sub(r"\D", "", text) or 0)


@dataclass(frozen=True)
class VersionRange:
    """All clauses hold: ">=0.5.17,<0.6"."""

    text: str
    clauses: tuple[tuple[str, Version], ...]

    @staticmethod
    def parse(text: str) -> "VersionRange":
        """Raises ValueError for text that is no range."""
        clauses = []
        for part in text.split(","):
            found = _CLAUSE.fullmatch(part.strip())
            if found is None:
                raise ValueError(f"not a version range: {text!r}")
            clauses.append((found["operator"], Version.parse(found["version"])))
        return VersionRange(text, tuple(clauses))

    def __contains__(self, version: Version) -> bool:
        return all(_holds(version, operator, wanted) for operator, wanted in self.clauses)


def _holds(version: Version, operator: str, wanted: Version) -> bool:
    return {
        ">=": version >= wanted,
        "<=": version <= wanted,
        "==": version == wanted,
        "!=": version != wanted,
        ">": version > wanted,
        "<": version < wanted,
    }[operator]
