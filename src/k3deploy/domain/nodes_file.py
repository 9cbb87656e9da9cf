"""nodes.yaml: which machines, and how to reach them. Pure models; reading the file is the adapters' work."""

from typing import Annotated

from pydantic import Field

from k3deploy.domain.profile.models import Port, Section


class NodeEntry(Section):
    """One machine. Only `name` and `address` are needed; the rest falls back to ~/.ssh/config.

    `address` is what `ssh` would be given: an address, a DNS name or an alias of ~/.ssh/config.
    `private_address` is found by the facts probe (by the profile's subnet) when it is absent.
    `host_key` is one line as in known_hosts without the host: "ssh-ed25519 AAAA...".
    """

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9.-]*$")]
    address: Annotated[str, Field(min_length=1)]
    port: Port | None = None
    user: str | None = None
    key: str | None = None
    jump: str | None = None
    host_key: str | None = None
    private_address: str | None = None
    pool: str | None = None


class NodesFile(Section):
    nodes: Annotated[tuple[NodeEntry, ...], Field(min_length=1)]
