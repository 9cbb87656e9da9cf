"""The engine's command line, rebuilt from the published option list of its release."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .config_file import merge_config_file
from .version import is_since

_HERE = Path(__file__).resolve().parent
_IN_IMAGE = _HERE / "data" / "flags.json"
_IN_REPOSITORY = Path("src/k3deploy/data/engines/sglang/0.5.23.json")
_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def human_readable_int(text: str) -> int:
    """`8192`, `8k` or `8Ki`."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return int(float(text[: -len(suffix)]) * _SUFFIXES[suffix])
    return int(text)


def json_list_type(text: str) -> list[Any]:
    """One JSON list."""
    value = json.loads(text)
    if not isinstance(value, list):
        raise argparse.ArgumentTypeError(f"expected a JSON list, got {type(value).__name__}")
    return value


def nullable_str(text: str) -> str | None:
    """A string, or nothing when it is empty or `None`."""
    return None if text in ("", "None") else text


_TYPES: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "json": json.loads,
    "human_readable_int": human_readable_int,
    "json_list_type": json_list_type,
    "nullable_str": nullable_str,
    "parse_cuda_graph_backend_arg": str,
    "parse_cuda_graph_config_arg": str,
}


def parse(argv: Sequence[str], version: str) -> argparse.Namespace:
    """The options of one launch; argparse's own message and exit code 2 for anything unknown or wrong."""
    parser = build_parser(version)
    arguments = list(argv)
    if arguments and not arguments[0].startswith("-"):
        arguments.insert(0, "--model-path")
    if "--config" in arguments:
        arguments = merge_config_file(parser, arguments)
    return parser.parse_args(arguments)


def build_parser(version: str) -> argparse.ArgumentParser:
    """A parser with every option of this release, prefix abbreviation included."""
    parser = argparse.ArgumentParser(prog="sglang serve")
    for flag in release_flags(version):
        _add(parser, flag)
    return parser


def release_flags(version: str) -> list[dict[str, Any]]:
    """The option list of this release: the newest known one, less what came later, plus what has gone."""
    flags: list[dict[str, Any]] = json.loads(_flags_file().read_text(encoding="utf-8"))["flags"]
    deltas: dict[str, dict[str, Any]] = json.loads((_HERE / "data" / "releases.json").read_text(encoding="utf-8"))
    older = [release for release in deltas if is_since(release, version)]
    if not older:
        return flags
    delta = deltas[min(older)]
    absent = set(delta["absent"])
    return [*(flag for flag in flags if flag["flag"] not in absent), *delta["present"]]


def _flags_file() -> Path:
    if _IN_IMAGE.exists():
        return _IN_IMAGE
    for root in _HERE.parents:
        if (root / _IN_REPOSITORY).exists():
            return root / _IN_REPOSITORY
    raise FileNotFoundError(f"no option list at {_IN_IMAGE} nor at {_IN_REPOSITORY}")


def _add(parser: argparse.ArgumentParser, flag: dict[str, Any]) -> None:
    if flag["type"] == "bool-optional":
        parser.add_argument(
            flag["flag"], dest=flag["dest"], action=argparse.BooleanOptionalAction, default=flag["default"]
        )
        return
    names = [flag["flag"], *flag["aliases"]]
    if not flag["takes_value"]:
        parser.add_argument(*names, dest=flag["dest"], action="store_true", default=bool(flag["default"]))
        return
    parser.add_argument(
        *names,
        dest=flag["dest"],
        type=_TYPES[flag["type"]],
        nargs=flag["nargs"],
        choices=flag["choices"],
        default=flag["default"],
        required=flag["required"],
    )
