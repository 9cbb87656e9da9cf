"""`--config FILE.yaml`: options from a file, put before those of the command line, as the engine merges them."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path


def merge_config_file(parser: argparse.ArgumentParser, argv: Sequence[str]) -> list[str]:
    """The command line with the file's options first, so that the command line wins."""
    if argv.count("--config") > 1:
        raise ValueError("Multiple config files specified! Only one allowed.")
    at = argv.index("--config")
    if at == len(argv) - 1:
        raise ValueError("No config file specified after --config flag!")
    return [*_arguments(parser, Path(argv[at + 1])), *argv[:at], *argv[at + 2 :]]


def _arguments(parser: argparse.ArgumentParser, path: Path) -> list[str]:
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise ValueError(f"Config file must be YAML format, got: {path.suffix}")
    if not path.exists():
        raise ValueError(f"Config file not found: {path}")
    switches = {
        option[2:].replace("-", "_")
        for action in parser._actions
        if action.nargs == 0
        for option in action.option_strings
        if option.startswith("--")
    }
    arguments: list[str] = []
    for key, value in _flat_yaml(path.read_text(encoding="utf-8")):
        if isinstance(value, bool):
            if key.replace("-", "_") not in switches:
                arguments += [f"--{key}", str(value).lower()]
            elif value:
                arguments.append(f"--{key}")
        elif isinstance(value, list):
            arguments += [f"--{key}", *map(str, value)] if value else []
        else:
            arguments += [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return arguments


def _flat_yaml(text: str) -> list[tuple[str, object]]:
    """The part of YAML that a list of options needs: `key: scalar`, with JSON for anything nested."""
    if text.lstrip().startswith("{"):
        return list(json.loads(text).items())
    pairs: list[tuple[str, object]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#") or line == "---":
            continue
        key, colon, value = line.partition(":")
        if not colon or raw[0].isspace():
            raise ValueError(f"line {number}: only `key: value` lines are understood here, got {raw!r}")
        pairs.append((key.strip(), _scalar(value.strip())))
    return pairs


def _scalar(text: str) -> object:
    if text[:1] in ("[", "{", '"'):
        return json.loads(text)
    if text[:1] == "'" and text.endswith("'"):
        return text[1:-1].replace("''", "'")
    return {"true": True, "false": False}.get(text.lower(), text)
