"""What the golden files should hold: every shipped profile's launches, and what a few commands say.

`scripts/golden` compares, `scripts/golden --accept` writes; nothing else does. The lab's profiles have no goldens of
their own: a test proves that their launches are their parent's but for model and image.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from k3deploy.adapters import profiles
from k3deploy.domain.launch.base import Address
from k3deploy.domain.launch.render import image_reference, render
from k3deploy.domain.launch.sheet import sheet
from k3deploy.domain.names import NodeName
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.topology import Topology, assign
from tests.cli_run import k3deploy

FOLDER = Path(__file__).parent
LAUNCH = "launch"
CLI = "cli"
PROFILES = ("b300x8", "gb300-nvl72", "h100x32")

_BAD = """\
extends: h100x32
name: bad
description: what a first attempt may look like
provenance: {source: x, verified_by: nobody}
hardware:
  gpus_per_node: "8"
engine:
  flags:
    trust-remote-code: yes
"""
_WRONG = """\
extends: h100x32
name: wrong
description: well written, and cannot work
provenance: {source: x, verified_by: nobody}
engine:
  flags:
    tp-size: 32
    reasoning-parser: kimi_k2
    moe-runer-backend: marlin
"""
_NODES = """\
nodes:
  - {name: gpu-1, address: 203.0.113.1, private_address: 10.0.0.219}
"""

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "profiles-list": ("profiles", "list"),
    "profiles-list-json": ("profiles", "list", "--output", "json"),
    "profiles-show": ("profiles", "show", "lab-gb300-nvl72", "--set", "pools[0].replicas.count=1"),
    "profiles-validate": ("profiles", "validate", "h100x32", "b300x8"),
    "profiles-validate-bad": ("profiles", "validate", "bad.yaml"),
    "profiles-validate-wrong": ("profiles", "validate", "wrong.yaml"),
    "profiles-validate-wrong-json": ("profiles", "validate", "wrong.yaml", "--output", "json"),
    "render": ("render", "--profile", "b300x8"),
    "render-nodes": ("render", "--profile", "b300x8", "--nodes", "one.yaml", "--set", "network.api=public"),
    "render-json": ("render", "--profile", "b300x8", "--output", "json"),
    "render-script": ("render", "--profile", "gb300-nvl72", "--replica", "serve-8", "--script"),
    "render-script-json": ("render", "--profile", "b300x8", "--script", "--output", "json"),
    "render-too-few": ("render", "--profile", "h100x32", "--nodes", "one.yaml"),
    "init": ("init", "ubuntu@203.0.113.1", "head=203.0.113.2:2222", "--key", "~/.ssh/rented"),
}


def made() -> dict[str, str]:
    """Relative path -> content, of every golden file."""
    return dict([*_launches(), *_commands()])


def on_disk() -> dict[str, str]:
    """Relative path -> content, of every file in the golden folders."""
    return {
        str(path.relative_to(FOLDER)): path.read_text("utf-8")
        for kind in (LAUNCH, CLI)
        for path in sorted((FOLDER / kind).rglob("*"))
        if path.is_file()
    }


def cluster(profile: Profile) -> tuple[Topology, dict[NodeName, Address]]:
    """As many nodes as the profile needs: gpu-01 at 10.0.0.11 on ens6, and so on; plain Ethernet."""
    names = [f"gpu-{number:02d}" for number in range(1, profile.node_count + 1)]
    nodes = NodesFile(nodes=tuple(NodeEntry(name=name, address=name) for name in names))
    addresses = {NodeName(name): Address(NodeName(name), f"10.0.0.{11 + i}", "ens6") for i, name in enumerate(names)}
    return assign(profile, nodes), addresses


def _launches() -> Iterator[tuple[str, str]]:
    for name in PROFILES:
        profile = profiles.load_profile(name)
        topology, addresses = cluster(profile)
        for launch in render(profile, topology, addresses, image=image_reference(profile.engine)):
            yield f"{LAUNCH}/{name}/{launch.replica}-{launch.node_rank}.txt", sheet(launch)


def _commands() -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder, _settings(Path(folder) / "settings"):
        shipped = next(place.folder for place in profiles.places() if place.title == "shipped")
        for name, argv in COMMANDS.items():
            work = Path(folder) / name
            work.mkdir()
            for file, text in (("bad.yaml", _BAD), ("wrong.yaml", _WRONG), ("one.yaml", _NODES)):
                (work / file).write_text(text, "utf-8")
            said = k3deploy(argv, work)
            parts = [f"$ k3deploy {' '.join(argv)}", said.stdout]
            if said.stderr:
                parts += ["--- stderr", said.stderr]
            if (written := work / "nodes.yaml").exists():
                parts += ["--- nodes.yaml", written.read_text("utf-8")]
            parts.append(f"--- exit {said.exit_code}")
            yield f"{CLI}/{name}.txt", "\n".join(parts).replace(str(shipped), "SHIPPED") + "\n"


@contextlib.contextmanager
def _settings(folder: Path) -> Iterator[None]:
    """No profile of the person who runs this may show up."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CONFIG_HOME"]
        else:
            os.environ["XDG_CONFIG_HOME"] = before
