"""Prove that all nodes see one and the same volume, before 1.56 TB go to it: one writes a word, the others read it."""

import secrets
from typing import Final

from k3deploy.contracts import Services
from k3deploy.domain.command import Program
from k3deploy.domain.errors import NodeError
from k3deploy.domain.names import NodeName
from k3deploy.phases.on_each import on_each
from k3deploy.phases.weights_site import WeightsSite

TIMEOUT_S: Final = 60.0


def prove_one_volume(svc: Services, site: WeightsSite) -> None:
    """Raises NodeError for a node that sees another volume, or none."""
    first, *others = site.topology.nodes
    path, word = f"{site.profile.storage.hf_home}/.k3deploy-{site.run}", secrets.token_hex(16)

    def call(node: NodeName, verb: str) -> str | None:
        args = {"path": path, "verb": verb, "word": word}
        found: str | None = svc.nodes[node].call(Program("volume_word", args, sudo=True, timeout_s=TIMEOUT_S))["word"]
        return found

    def look(node: NodeName) -> None:
        found = call(node, "read")
        if found != word:
            mount = site.profile.weights_mount
            raise NodeError(
                what=f"{node}: {mount} is not the volume that {first} has there",
                why="what one node writes there, this one does not see"
                if found is None
                else "it has another file there",
                fix=f"mount the same volume at {mount} on all nodes, or take weights.strategy auto",
                context={"node": node, "found": found or "nothing", "wanted": f"the word that {first} wrote to {path}"},
            )

    call(first, "write")
    try:
        on_each(others, look, doing="looking at the shared volume")
    finally:
        call(first, "remove")
