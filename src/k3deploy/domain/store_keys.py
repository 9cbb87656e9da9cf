"""Which keys a store may hold: slash-separated words that are safe as a file path and as an S3 key alike."""

import re

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LONGEST = 512


def check_key(key: str) -> None:
    """Raise ValueError for a key that some store could not hold, or could read as another one.

    Words start with a letter, a digit or `_`: so there is no `..`, and no name that a store's own files (`.tmp-*`) use.
    """
    if not is_key(key):
        raise ValueError(f"not a store key: {key!r}")


def is_key(key: str) -> bool:
    """Whether every store can hold it."""
    return len(key) <= _LONGEST and all(_WORD.fullmatch(word) for word in key.split("/"))
