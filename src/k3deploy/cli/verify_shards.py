"""`k3deploy verify-shards`: prove the weights on every node, and name each file that is wrong."""

from typing import Annotated, Optional

import typer

from k3deploy.cli.options import DEFAULT_NODES, NodesPath, Output, OutputFormat, RunIdOption, StoreUrl
from k3deploy.cli.output import show, table


def register(app: typer.Typer) -> None:
    app.command(name="verify-shards")(verify_shards)


def verify_shards(
    quick: bool = typer.Option(False, "--quick", help="Sizes, headers and earlier proofs only; nothing is hashed."),
    profile: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--profile", "-p", metavar="NAME|PATH", help="Whose weights; default: those of the latest run."),
    ] = None,
    run_id: RunIdOption = None,
    nodes: NodesPath = DEFAULT_NODES,
    store: StoreUrl = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Read and hash every weight file on all nodes. Exit code 0: all right, 4: a file is wrong, 3: cannot tell."""
    from k3deploy.cli import wiring
    from k3deploy.cli.interrupt import stop_on_signal
    from k3deploy.domain.errors import UsageError
    from k3deploy.flows.verify import verify_shards as flow

    if profile is not None and run_id is not None:
        raise UsageError(what="--profile and --run-id exclude each other", fix="leave one of them out")
    place = wiring.open_place(nodes, store)
    begun = wiring.begin(place, profile, None) if profile else wiring.locked(place, place.choose(run_id))
    with wiring.open_session(begun, place, is_dry=True) as opened:
        try:
            with stop_on_signal(
                opened.cancel, lambda: "stopping; the hashing goes on there, and can be followed again"
            ):
                has_run = not begun.is_new and begun.record.is_live
                report = flow(opened.session, is_full=not quick, has_run=has_run)
        finally:
            opened.console.close()
    rows = table(("node", "weights", "read", "time"), report.rows())
    head = f"{report.manifest.repo} at {report.manifest.commit}, {len(report.manifest.files)} files"
    text = "\n".join([head, "", rows, *report.notes(), "", report.headline])
    show(output, report.as_dict(), text)
    return int(report.exit_code)
