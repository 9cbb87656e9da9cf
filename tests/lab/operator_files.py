"""The files an operator of k3deploy would have on a laptop: nodes.yaml, known hosts, and the environment."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.folders import REPOSITORY
from tests.lab.naming import PRIVATE_SUBNET, PUBLIC_SUBNET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.lab.folders import LabFolder


@dataclass(frozen=True)
class NodeEntry:
    """One node as nodes.yaml knows it; the host key as the provider's console would show it."""

    name: str
    address: str
    user: str
    key: Path
    host_key: str
    port: int | None = None


def nodes_yaml(nodes: Iterable[NodeEntry]) -> str:
    """The nodes file."""
    lines = ["nodes:"]
    for node in nodes:
        lines += [f"  - name: {node.name}", f"    address: {node.address}"]
        if node.port is not None:
            lines.append(f"    port: {node.port}")
        lines += [f"    user: {node.user}", f"    key: {node.key}", f"    host_key: {node.host_key}"]
    return "\n".join(lines) + "\n"


def collect_known_hosts(folder: LabFolder) -> None:
    """Put together what the nodes' host keys are now; nodes.yaml stays as it was, as an operator's would."""
    lines = [path.read_text() for path in sorted(folder.root.glob("nodes/*/known_hosts"))]
    with tempfile.NamedTemporaryFile("w", dir=folder.root, prefix=".known_hosts-", delete=False) as draft:
        draft.writelines(lines)
    Path(draft.name).rename(folder.known_hosts)


def environment(lab_name: str, kind: str, urls: Mapping[str, str]) -> dict[str, str]:
    """What makes a program that runs in the lab use the lab's services, and nothing of the machine's own accounts."""
    found = {
        "K3DEPLOY_LAB": kind,
        "K3DEPLOY_LAB_NAME": lab_name,
        "NO_PROXY": f"{PUBLIC_SUBNET},{PRIVATE_SUBNET},localhost,127.0.0.1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if "registry" in urls:
        found["K3DEPLOY_LAB_REGISTRY"] = urls["registry"]
    if "hub" in urls:
        found["HF_ENDPOINT"] = urls["hub"]
    if "s3" in urls:
        found |= {
            "AWS_ENDPOINT_URL": urls["s3"],
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    return found


def write_environment(path: Path, variables: Mapping[str, str]) -> None:
    """KEY=VALUE lines, as `env` files are written everywhere; no value holds a newline."""
    path.write_text("".join(f"{name}={value}\n" for name, value in sorted(variables.items())))


def read_environment(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def inside(variables: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """The environment for a program in the lab: the caller's without proxies, the clone's programs first on PATH."""
    kept = {name: value for name, value in base.items() if not name.lower().endswith("_proxy")}
    programs = REPOSITORY / ".venv" / "bin"
    path = [str(programs)] if programs.is_dir() else []
    kept["PATH"] = os.pathsep.join([*path, base.get("PATH", os.defpath)])
    return kept | dict(variables)
