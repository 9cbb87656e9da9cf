"""`k3deploy teardown`: shows what would go; with `--confirm` it goes, and what is gone is read back."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from k3deploy.cli.options import DEFAULT_NODES, NodesPath, Output, OutputFormat, RunIdOption, StoreUrl, options_again
from k3deploy.cli.output import show

if TYPE_CHECKING:
    from k3deploy.cli.wiring import Place
    from k3deploy.domain.run import RunRecord


def register(app: typer.Typer) -> None:
    app.command(name="teardown")(teardown)


def teardown(
    confirm: bool = typer.Option(False, "--confirm", help="Do it. Without this, only show what would be done."),
    purge_weights: bool = typer.Option(False, "--purge-weights", help="Also remove the weights from the nodes."),
    restore: bool = typer.Option(False, "--restore", help="Also put Docker and the disks back as they were."),
    run_id: RunIdOption = None,
    nodes: NodesPath = DEFAULT_NODES,
    store: StoreUrl = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Stop the engine, keep its logs, and free the nodes. What the run made is removed and the nodes are proved free;
    the machines bill on until you end them."""
    from k3deploy.cli import summary, wiring
    from k3deploy.cli.farewell import TornDown
    from k3deploy.cli.interrupt import stop_on_signal
    from k3deploy.domain.errors import NotConfirmed
    from k3deploy.domain.holdings import TeardownOptions
    from k3deploy.flows import teardown as flow
    from k3deploy.flows.session import raise_for

    options = TeardownOptions(purges_weights=purge_weights, restores=restore)
    place = wiring.open_place(nodes, store)
    record = choose(place, run_id)
    again = f"k3deploy teardown --run-id {record.run_id}{options_again(nodes, store)} --confirm"
    again += (" --purge-weights" if purge_weights else "") + (" --restore" if restore else "")
    begun = wiring.locked(place, record)
    words = summary.Words(record, place.clock, again)
    with (
        words.still_billing() if confirm else nullcontext(),
        wiring.open_session(begun, place, is_dry=not confirm) as opened,
    ):
        if not confirm:
            seen = flow.preview(opened.session, options)
            if output is OutputFormat.TEXT:
                show(output, seen.as_dict(), seen.text())
            raise NotConfirmed(
                what="nothing was done",
                why="teardown ends a running engine and removes files, so it wants to hear it said",
                fix=f"`{again}`",
                context=seen.as_dict() if output is OutputFormat.JSON else {},
            )
        try:
            with stop_on_signal(opened.cancel, lambda: words.stopping(opened.console.state)):
                outcome = flow.teardown(opened.session, options)
        finally:
            opened.console.close()
        raise_for(outcome.result, again=again)
    told = TornDown(record, outcome.state, options, place.runs.store.describe(), place.clock.now())
    show(output, told.as_dict(), told.text())
    return 0


def choose(place: "Place", run_id: str | None) -> "RunRecord":
    """The one that is named, else the only live one on these machines, else the last one (to finish a restore)."""
    from k3deploy.domain.errors import UsageError

    if run_id is not None:
        return place.runs.get(run_id)
    live = [record for record in place.runs.of(place.addresses) if record.is_live]
    if len(live) > 1:
        names = ", ".join(str(record.run_id) for record in live)
        raise UsageError(
            what=f"{len(live)} runs are live on these machines",
            why="which one to end is not for us to guess",
            fix=f"name it: `k3deploy teardown --run-id {live[0].run_id}`",
            context={"found": names},
        )
    return live[0] if live else place.runs.latest(place.addresses)
