"""Which SGLang release this program stands in for: its log wording and option list follow from it."""

import importlib.metadata
import os

DEFAULT = "0.5.23"


def installed_version() -> str:
    """The release named by LAB_ENGINE_VERSION, else by the image's package metadata, else the newest known."""
    if named := os.environ.get("LAB_ENGINE_VERSION"):
        return named
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return DEFAULT


def is_since(version: str, first: str) -> bool:
    """Whether `version` is `first` or newer."""
    return _key(version) >= _key(first)


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
