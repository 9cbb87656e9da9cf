"""Options that several commands share, written once, so that they read and behave the same everywhere."""

import os
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="The result on stdout: text for people or JSON for programs.")
]
_PROFILE_HELP = "A shipped profile's name or a YAML file."
ProfileName = Annotated[
    str,
    typer.Option("--profile", "-p", metavar="NAME|PATH", help=_PROFILE_HELP),
]
ProfileArgument = Annotated[str, typer.Argument(metavar="NAME|PATH", help=_PROFILE_HELP)]
ProfileArguments = Annotated[list[str], typer.Argument(metavar="NAME|PATH", help=_PROFILE_HELP)]
NodesPath = Annotated[
    Path, typer.Option("--nodes", metavar="PATH", help="The nodes file (written by `k3deploy init`).")
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option("--set", metavar="PATH=VALUE", help="Set one value of the profile; may be given several times."),
]
RunIdOption = Annotated[
    Optional[str],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option("--run-id", metavar="ID", help="Which run; default: the latest one on these nodes."),
]
StoreUrl = Annotated[
    Optional[str],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option(
        "--store",
        metavar="URL",
        envvar="K3DEPLOY_STORE",
        help="Where runs are kept: a folder or s3://bucket/prefix; default: .k3deploy beside the nodes file.",
    ),
]

DEFAULT_NODES = Path("nodes.yaml")


def options_again(nodes: Path, store: str | None) -> str:
    """What a command that we propose needs too, to mean the same machines and the same store as the one typed."""
    words = [] if nodes == DEFAULT_NODES else ["--nodes", str(nodes)]
    if store and store != os.environ.get("K3DEPLOY_STORE"):
        words += ["--store", store]
    return "".join(f" {shlex.quote(word)}" for word in words)
