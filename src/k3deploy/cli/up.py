"""`k3deploy up`: from the nodes as they are to an endpoint that answers; again, and it does only what is missing."""

from contextlib import nullcontext, suppress
from pathlib import Path
from shlex import quote
from typing import Annotated, Optional

import typer

from k3deploy.cli.options import (
    DEFAULT_NODES,
    NodesPath,
    Output,
    OutputFormat,
    ProfileName,
    RunIdOption,
    StoreUrl,
    options_again,
)
from k3deploy.cli.output import show


def register(app: typer.Typer) -> None:
    app.command(name="up")(up)


def up(
    profile: ProfileName,
    nodes: NodesPath = DEFAULT_NODES,
    run_id: RunIdOption = None,
    store: StoreUrl = None,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be done; change nothing."),
    until: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--until", metavar="PHASE", help="Stop after this phase, such as weights-verify."),
    ] = None,
    wheelhouse: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--wheelhouse", metavar="DIR", help="Wheels made by `k3deploy wheelhouse`."),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Bring the nodes to an endpoint that answers. Again, it finishes what an earlier `up` began."""
    from k3deploy.cli import summary, wiring
    from k3deploy.cli.interrupt import stop_on_signal
    from k3deploy.domain.errors import StoreError
    from k3deploy.flows.deploy import deploy
    from k3deploy.flows.session import raise_for

    where = options_again(nodes, store)
    again = f"k3deploy up --profile {quote(profile)}{where}" + (f" --until {until}" if until else "")
    place = wiring.open_place(nodes, store)
    begun = wiring.begin(place, profile, run_id)
    for warning in begun.warnings:  # once, when the run begins
        summary.warn(warning)
    words = summary.Words(begun.record, place.clock, again)
    with words.still_billing():
        if not dry_run:
            begun = wiring.save(place, begun)
        with wiring.open_session(begun, place, wheelhouse=wheelhouse, is_dry=dry_run) as opened:
            try:
                with stop_on_signal(opened.cancel, lambda: words.stopping(opened.console.state)):
                    outcome = deploy(opened.session, until=until, is_dry=dry_run)
            finally:
                opened.console.close()
        told = summary.Deployed(begun.record, outcome, dry_run, until, place.clock.now(), where)
        if output is OutputFormat.TEXT and told.plan:
            show(output, {}, f"{told.plan}\n\n")  # what could be planned is worth seeing beside what failed
        # The lock now names the digest that was settled. When the run failed, that is what is to be told.
        with nullcontext() if outcome.result.is_done else suppress(StoreError):
            if outcome.result.has_changed:
                wiring.save(place, begun)
        raise_for(outcome.result, again=again)
    show(output, told.as_dict(), told.text())
    return 0
