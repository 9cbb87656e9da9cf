"""Everything the first look at a node needs, in one answer. A fact that can't be read is null, with its reason."""

import time
from typing import Any

from k3deploy.remote.facts.disks import disks
from k3deploy.remote.facts.gpus import gpus
from k3deploy.remote.facts.machine import machine
from k3deploy.remote.facts.network import network
from k3deploy.remote.reading import Reader

SCHEMA = 1


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: mount, paths, blobs (see facts.disks). `reasons` maps the name of a missing fact to why it is missing."""
    read = Reader()
    found: dict[str, Any] = {"schema": SCHEMA, "epoch_s": time.time()}
    found.update(machine(read))
    found.update(network(read))
    found.update(gpus(read))
    found.update(disks(read, args))
    found["reasons"] = read.reasons
    return found
