"""Options that several commands share, written once, so that they read and behave the same everywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="text for people, json for programs (documented schema).")
]
ProfileName = Annotated[
    str,
    typer.Option("--profile", "-p", metavar="NAME|PATH", help="A shipped profile's name or a YAML file."),
]
NodesPath = Annotated[
    Path, typer.Option("--nodes", metavar="PATH", help="The nodes file (written by `k3deploy init`).")
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option("--set", metavar="PATH=VALUE", help="Set one value of the profile; may be given several times."),
]
RunIdOption = Annotated[
    Optional[str],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option("--run-id", metavar="ID", help="Which run; default: the latest one of this folder's nodes."),
]
StoreUrl = Annotated[
    Optional[str],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option(
        "--store",
        metavar="URL",
        envvar="K3DEPLOY_STORE",
        help="Where progress is kept: a folder or s3://bucket/prefix (default: .k3deploy beside the nodes file).",
    ),
]

DEFAULT_NODES = Path("nodes.yaml")
