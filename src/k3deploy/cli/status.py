"""`k3deploy status` and `k3deploy runs list`: from the store alone; `--live` also asks the nodes."""

from typing import TYPE_CHECKING

import typer

from k3deploy.cli.group import help_when_alone
from k3deploy.cli.options import DEFAULT_NODES, NodesPath, Output, OutputFormat, RunIdOption, StoreUrl
from k3deploy.cli.output import show, table

if TYPE_CHECKING:
    from k3deploy.domain.status import Status


def register(app: typer.Typer) -> None:
    app.command(name="status")(status)
    runs = typer.Typer(help="The runs that the store knows.", rich_markup_mode=None)
    runs.callback(invoke_without_command=True)(help_when_alone)
    runs.command(name="list")(list_runs)
    app.add_typer(runs, name="runs")


def status(
    run_id: RunIdOption = None,
    nodes: NodesPath = DEFAULT_NODES,
    store: StoreUrl = None,
    live: bool = typer.Option(False, "--live", help="Ask the nodes too, not only the store."),
    output: Output = OutputFormat.TEXT,
) -> int:
    """Show where a run stands, its answer and its cost. Exit code 4 when it is not well."""
    from k3deploy.cli import wiring
    from k3deploy.domain.errors import ExitCode
    from k3deploy.flows.status import health, read_status

    place = wiring.open_place(nodes, store)
    found = read_status(place.runs, place.choose(run_id), place.clock.now())
    body, text, is_well = found.as_dict(), _text(found), not found.has_failed
    if live:
        with wiring.open_session(wiring.locked(place, found.record), place) as opened:
            report = health(opened.session)
        body["live"], text, is_well = report.as_dict(), f"{text}\n\n{report.text()}", report.is_ok
    show(output, body, text)
    return ExitCode.DONE if is_well else ExitCode.UNHEALTHY


def list_runs(
    nodes: NodesPath = DEFAULT_NODES,
    store: StoreUrl = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List the runs, newest first."""
    from k3deploy.cli import wiring
    from k3deploy.domain.units import duration_text, usd_text

    place = wiring.open_place(nodes, store)
    records, now = place.runs.all(), place.clock.now()
    rows = [
        (
            record.run_id,
            record.state,
            record.profile,
            str(len(record.addresses)),
            duration_text((record.ended_at or now) - record.created_at),
            "-" if record.usd_per_hour is None else f"{usd_text(record.usd_per_hour)}/h",
        )
        for record in records
    ]
    body = [{"run_id": r.run_id, "state": r.state, "profile": r.profile, "nodes": dict(r.addresses)} for r in records]
    text = table(("run", "state", "profile", "nodes", "age", "price"), rows) if rows else "no runs"
    show(output, body, text)


def _text(found: "Status") -> str:
    lines = [
        f"run       {found.record.run_id}  ({found.headline})",
        f"profile   {found.record.profile} on {len(found.record.addresses)} nodes: "
        + ", ".join(f"{name} ({address})" for name, address in found.record.addresses.items()),
        f"cost      {found.cost_line}",
    ]
    for replica, evidence in found.answers.items():
        lines.append(f"endpoint  {replica}: {evidence.get('endpoint', '?')}  model {evidence.get('model', '?')}")
        if evidence.get("answer"):
            lines.append(f"answer    {evidence['answer']}")
    rows = [(count.phase, f"{count.done}/{count.total}", "; ".join(count.notes)) for count in found.phases]
    if rows:
        lines += ["", table(("phase", "done", "not done"), rows)]
    return "\n".join(lines)
