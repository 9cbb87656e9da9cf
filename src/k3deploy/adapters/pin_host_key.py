"""Write a node's host key into the text of a nodes file, and leave every other character as its owner wrote it."""

from typing import Any

import yaml


def pin_host_key(text: str, name: str, line: str) -> str:
    """`line` is the key as "ssh-ed25519 AAAA...". An existing one is replaced, else it goes below the address.

    Raises ValueError when that cannot be done without changing something else.
    """
    entry = _entry(text, name)
    fields = {key.value: (key, value) for key, value in entry.value}
    if "host_key" in fields:
        value = fields["host_key"][1]
        start, end = value.start_mark.index, value.end_mark.index
        changed = text[:start] + (line if start != end else f" {line}") + text[end:]
    else:
        key, value = fields["address"]
        end = value.end_mark.index
        if entry.flow_style:
            changed = f"{text[:end]}, host_key: {line}{text[end:]}"
        else:
            stop = text.find("\n", end)
            stop = len(text) if stop < 0 else stop
            changed = f"{text[:stop]}\n{' ' * key.start_mark.column}host_key: {line}{text[stop:]}"
    if not _is_that_change(text, changed, name, line):
        raise ValueError("the file is written in a way that cannot be changed in one place")
    return changed


def _entry(text: str, name: str) -> Any:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value != "nodes" or not isinstance(value, yaml.SequenceNode):
            continue
        for entry in value.value:
            fields = {key.value: each.value for key, each in entry.value}
            if fields.get("name") == name and "address" in fields:
                return entry
    raise ValueError(f"the file has no node {name} with an address")


def _is_that_change(text: str, changed: str, name: str, line: str) -> bool:
    try:
        return bool(_with_pin(text, name, line) == _read(changed))
    except yaml.YAMLError:
        return False


def _read(text: str) -> Any:
    """Plain text for every value: what matters is that nothing else has changed."""
    return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - the base loader makes text only


def _with_pin(text: str, name: str, line: str) -> Any:
    wanted = _read(text)
    for entry in wanted["nodes"]:
        if entry["name"] == name:
            entry["host_key"] = line
    return wanted
