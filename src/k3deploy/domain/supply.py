"""What a node is given to get a repository's files with: which client, its settings, and the secrets it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from k3deploy.domain.command import Secret


@dataclass(frozen=True)
class Supply:
    """`client`: huggingface_hub with this environment; `urls`: plain HTTP, with an address for each file.

    Secrets: `hf_token`, or `urls` (JSON text {path: address}), as a signed address opens the file to whoever has it.
    """

    origin: Literal["client", "urls"] = "client"
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
