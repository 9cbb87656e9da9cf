"""`k3deploy logs`: the engine's words from all ranks, or how far each rank is as its log tells it."""

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from k3deploy.cli.options import DEFAULT_NODES, NodesPath, Output, OutputFormat, RunIdOption, StoreUrl
from k3deploy.cli.output import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from k3deploy.domain.names import NodeName
    from k3deploy.flows.logs import Line
    from k3deploy.flows.session import Session


def register(app: typer.Typer) -> None:
    app.command(name="logs")(logs)


def logs(
    node: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--node", metavar="NAME", help="Only this node."),
    ] = None,
    replica: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--replica", metavar="NAME", help="Only the nodes of this replica."),
    ] = None,
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on as new lines come; Ctrl-C ends it."),
    stage: bool = typer.Option(False, "--stage", help="Show how far each rank is, not its lines."),
    tail: Annotated[
        int, typer.Option("--tail", metavar="LINES", min=0, help="How many of the last lines of each node.")
    ] = 100,
    run_id: RunIdOption = None,
    nodes: NodesPath = DEFAULT_NODES,
    store: StoreUrl = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Show what the engine says. When its nodes are gone, what the store kept of it."""
    from k3deploy.cli import wiring
    from k3deploy.domain.errors import ExitCode, UsageError
    from k3deploy.flows import logs as flow

    if follow and stage:
        raise UsageError(what="--follow and --stage exclude each other", fix="leave one of them out")
    if node is not None and replica is not None:
        raise UsageError(what="--node and --replica exclude each other", fix="leave one of them out")
    place = wiring.open_place(nodes, store)
    begun = wiring.locked(place, place.choose(run_id))
    with wiring.open_session(begun, place) as opened:
        session = opened.session
        chosen = flow.chosen(session, node=node, replica=replica)
        if stage:
            ranks = flow.stages(session, chosen)
            data = [dict(flow.stage_dict(session, rank)) for rank in ranks]
            show(output, data, "\n".join(rank.standing for rank in ranks))
        elif follow:
            _follow(session, chosen, tail, output)
        else:
            found = flow.read(session, chosen, tail=tail)
            width = max(len(name) for name in chosen)
            rows = []
            for log in found:
                if log.source != "node":
                    rows.append(f"{log.node:<{width}}  ({log.why or log.source})")
                rows += [_row(log.node, line, width) for line in log.lines]
            show(output, [log.as_dict() for log in found], "\n".join(rows))
            if all(log.source == "none" for log in found):
                return ExitCode.UNHEALTHY
    return ExitCode.DONE


def _follow(session: "Session", chosen: "Sequence[NodeName]", tail: int, output: OutputFormat) -> None:
    from k3deploy.flows import logs as flow

    width = max(len(name) for name in chosen)
    try:
        for node, line in flow.follow(session, chosen, tail=tail):
            if output is OutputFormat.JSON:
                text = json.dumps({"node": node, "at": line.at, "text": line.text})
            else:
                text = _row(node, line, width)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        return  # the way to end it


def _row(node: "NodeName", line: "Line", width: int) -> str:
    """Node, the container's own time of the line in UTC, the line."""
    stamp = datetime.fromtimestamp(line.at, UTC).strftime("%H:%M:%S")
    return f"{node:<{width}}  {stamp}  {line.text}"
