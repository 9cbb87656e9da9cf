"""The one place where a value becomes words of a command line."""

import json

from k3deploy.domain.launch.base import Flag


def words(value: object) -> tuple[str, ...] | None:
    """What follows an option's name: () for a switch that is on, None where the option is left out.

    true -> nothing follows; false or None -> the option is absent; text and numbers -> one word; a list -> one word
    for each item; a map -> compact JSON. Raises ValueError for an empty list: no option takes zero words on purpose.
    """
    if value is None or value is False:
        return None
    if value is True:
        return ()
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("an option cannot have an empty list as its value")
        return tuple(_word(item) for item in value)
    return (_word(value),)


def _word(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def flag(name: str, value: object, source: str) -> Flag | None:
    """`--name` with its words, or None where the value leaves it out. `name` comes without dashes."""
    found = words(value)
    if found is None:
        return None
    return Flag(f"--{name}", found[0] if found else None, source, rest=found[1:])
