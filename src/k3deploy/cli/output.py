"""Results go to stdout: text for people or JSON for programs. Progress and errors go to stderr, elsewhere."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from k3deploy.cli.options import OutputFormat


def show(fmt: OutputFormat, data: Mapping[str, Any] | Sequence[Any], text: str) -> None:
    """Print one result. `data` is the documented JSON shape of the command, `text` the same facts for people."""
    if fmt is OutputFormat.JSON:
        json.dump(data, sys.stdout, indent=2, default=str)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
    sys.stdout.flush()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, two spaces apart: readable in a terminal, a log and a pager alike."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
