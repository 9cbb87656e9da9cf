"""The image registry: Debian's docker-registry, on a copy of content that was pushed once and cached.

The engine image goes in over the registry's own protocol, so no dockerd takes part and pulls give the same digest in
every lab.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from tests.lab import cache, image, network, registry_client
from tests.lab.commands import machine_env, run
from tests.lab.deadline import wait_for
from tests.lab.kernel import in_netns
from tests.lab.naming import CONTROL_ADDRESS, PREFIX, REGISTRY_PORT
from tests.lab.processes import spawn

HEALTH_PATH = "/v2/"
READY_TIMEOUT_S = 30.0
GRACE_S = 5.0
LOOPBACK = "127.0.0.1"


def argv(folder: Path, storage: Path, address: str = str(CONTROL_ADDRESS)) -> tuple[str, ...]:
    """The server's command; its configuration is written into `folder`."""
    config = folder / "registry.yml"
    content = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": {"addr": f"{address}:{REGISTRY_PORT}"},
    }
    config.write_text(json.dumps(content, indent=1) + "\n")  # JSON is YAML
    return ("docker-registry", "serve", str(config))


def fill(storage: Path, seed: Path) -> None:
    """Give a lab its own copy, so that its tests may push; a registry rewrites files in place, so no links."""
    if storage.exists():
        return
    draft = storage.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(seed, draft)
    draft.rename(storage)


def seeded() -> Path:
    """The storage folder of a registry that holds every tag of the engine image, cached."""
    rootfs = _engine_rootfs()
    recipe = cache.recipe_hash(
        rootfs.parent.name,
        Path(image.__file__).read_bytes(),
        Path(registry_client.__file__).read_bytes(),
        image.engine_layer(),
    )

    def build(draft: Path) -> None:
        # Its own namespace: no port of the machine is taken, and nothing of the machine reaches it.
        netns = f"{PREFIX}-seed-{os.getpid()}"
        run("ip", "netns", "add", netns)
        try:
            run("ip", "-n", netns, "link", "set", "lo", "up")
            _push(draft, netns, rootfs)
        finally:
            run("ip", "netns", "delete", netns)

    return cache.entry("registry", recipe, build) / "storage"


def _engine_rootfs() -> Path:
    recipe = cache.recipe_hash(image.SUITE, *image.ROOTFS_RECIPE)
    return cache.entry("engine-root", recipe, lambda draft: image.build_rootfs(draft / "root.tar")) / "root.tar"


def _push(draft: Path, netns: str, rootfs: Path) -> None:
    command = argv(draft, draft / "storage", LOOPBACK)
    server = spawn([*network.enter(netns), *command], log=draft / "registry.log", env=machine_env())
    try:
        wait_for(
            "the registry to be filled answers",
            lambda: network.answers_http(netns, LOOPBACK, REGISTRY_PORT, HEALTH_PATH),
            READY_TIMEOUT_S,
        )
        in_netns(netns, lambda: image.push_all(f"http://{LOOPBACK}:{REGISTRY_PORT}", rootfs))
    finally:
        server.end(GRACE_S)
