"""Where a lab keeps its things: one folder per lab, and beside it the cache that all labs share."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabError

REPOSITORY = Path(__file__).resolve().parents[2]


def home() -> Path:
    """`$K3DEPLOY_LAB_HOME`, else a folder of the user's cache; never inside the clone."""
    chosen = os.environ.get("K3DEPLOY_LAB_HOME")
    if chosen:
        return Path(chosen).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).absolute() / "k3deploy-lab"


def labs() -> Path:
    return home() / "labs"


def failed(name: str) -> Path:
    """Where the logs of a lab that did not come up are kept, until one of that name does."""
    return home() / "failed" / name


def cache() -> Path:
    return home() / "cache"


@dataclass(frozen=True)
class LabFolder:
    """The paths inside one lab's folder."""

    root: Path

    @property
    def work(self) -> Path:
        """The folder in which an operator would run k3deploy."""
        return self.root / "work"

    @property
    def nodes_yaml(self) -> Path:
        return self.work / "nodes.yaml"

    @property
    def key(self) -> Path:
        return self.root / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def env(self) -> Path:
        return self.root / "env"

    @property
    def state(self) -> Path:
        return self.root / "lab.json"

    @property
    def pool_image(self) -> Path:
        return self.root / "pool.xfs"

    @property
    def pool(self) -> Path:
        return self.root / "pool"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    @property
    def shared(self) -> Path:
        """What a volume that all nodes mount is made of."""
        return self.root / "shared"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name


def kind_of(name: str) -> str | None:
    """How the lab of this name was made, from its own record; None when there is none."""
    state = LabFolder(labs() / name).state
    return str(json.loads(state.read_text())["kind"]) if state.exists() else None


def refuse_other_kind(name: str, kind: str) -> None:
    there = kind_of(name)
    if there not in (None, kind):
        raise LabError(
            f"the lab {name!r} is a {there} lab, not a {kind} one",
            fix=f"scripts/lab down --name {name}, or another --name",
        )
