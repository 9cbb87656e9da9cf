"""What `up` takes from the cache, and `prepare` puts there: node image, checkpoint, registry content."""

from __future__ import annotations

import importlib.util
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.lab import cache, checkpoint, node_image, packages, registry

CHECKPOINT_RECIPE = (Path(checkpoint.__file__), Path(checkpoint.__file__).with_suffix(".json"))

COPIED_KINDS = ("engine-root", "node-image", "node-root", "registry")


@dataclass(frozen=True)
class Assets:
    """Paths in the cache."""

    base_image: Path
    hub_root: Path
    registry: Path


def prepare(variant: str) -> Assets:
    """Build what is missing. This alone may need a package index."""
    packages.ensure()
    with ThreadPoolExecutor() as pool:  # two Debian trees, one core each
        image, content = pool.submit(node_image.base_image), pool.submit(registry.seeded)
        ready = Assets(base_image=image.result(), hub_root=hub_root(variant), registry=content.result())
    for kind in COPIED_KINDS:
        cache.prune(kind)
    operator_wheels()
    return ready


def operator_wheels() -> None:
    """Put the node client's wheels into the operator's own cache, as a first `up` does: the lab has no index.

    Left out where the interpreter has no k3deploy: nodes can then be brought up, and the first `up` must bring wheels.
    """
    if importlib.util.find_spec("k3deploy") is None:
        return
    from k3deploy.adapters.wheelhouse import Wheelhouse

    Wheelhouse().pack(platform.machine())


def hub_root(variant: str) -> Path:
    """The folder that the hub serves: both repositories of a checkpoint variant."""
    recipe = cache.recipe_hash(variant, *(path.read_bytes() for path in CHECKPOINT_RECIPE if path.exists()))

    def build(draft: Path) -> None:
        checkpoint.build(draft, variant)

    return cache.entry(f"checkpoint-{variant}", recipe, build)
