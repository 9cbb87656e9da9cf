"""What `up` takes from the cache, and `prepare` puts there: node image, checkpoint, registry content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab import node_image, packages

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Assets:
    """Paths in the cache; a part whose builder is absent is None, and the lab does without it."""

    base_image: Path
    hub_root: Path | None
    registry: Path | None


def prepare(variant: str) -> Assets:
    """Build what is missing. This alone may need a package index."""
    packages.ensure()
    return Assets(base_image=node_image.base_image(), hub_root=None, registry=None)
