"""Results go to stdout: text for people or JSON for programs. Progress and errors go to stderr, elsewhere."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from k3deploy.cli.options import OutputFormat
from k3deploy.cli.streams import mute
from k3deploy.domain.errors import OutputError


def show(fmt: OutputFormat, data: Mapping[str, Any] | Sequence[Any], text: str) -> None:
    """Print one result. `data` is the documented JSON shape of the command, `text` the same facts for people."""
    if fmt is OutputFormat.JSON:
        put(json.dumps(data, indent=2, default=str) + "\n")
    else:
        put(text if text.endswith("\n") or not text else text + "\n")


def put(text: str) -> None:
    """Write to stdout, all of it, now. A reader that left is no failure; raises OutputError when there is no room."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        mute(sys.stdout)
    except OSError as err:
        mute(sys.stdout)
        raise OutputError(
            what="the result could not be written to stdout",
            why=f"{err.strerror}; what the command did is done",
            fix="send the output to a place with room and run the same command again",
        ) from err


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, two spaces apart: readable in a terminal, a log and a pager alike."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
