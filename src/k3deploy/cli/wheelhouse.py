"""`k3deploy wheelhouse`: make the folder that `up --wheelhouse` takes where there is no package index."""

from pathlib import Path
from typing import Annotated

import typer

from k3deploy.cli.options import Output, OutputFormat
from k3deploy.cli.output import show


def register(app: typer.Typer) -> None:
    app.command(name="wheelhouse")(wheelhouse)


def wheelhouse(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put them; made when it is not there.")],
    output: Output = OutputFormat.TEXT,
) -> None:
    """Download the wheels of the nodes' Hub client, by hash. For `up --wheelhouse` where there is no package index."""
    from k3deploy.adapters.wheelhouse import Wheelhouse
    from k3deploy.domain.units import bytes_text

    house = Wheelhouse()
    sizes = house.copy_to(folder)
    body = {
        "folder": str(folder),
        "lock": house.lock.id,
        "client": house.lock.client_version,
        "wheels": [{"name": name, "bytes": size} for name, size in sizes.items()],
    }
    text = (
        f"{len(sizes)} wheels ({bytes_text(sum(sizes.values()))}) of huggingface_hub {house.lock.client_version} "
        f"in {folder}\nuse it with: k3deploy up --profile NAME --wheelhouse {folder}"
    )
    show(output, body, text)
