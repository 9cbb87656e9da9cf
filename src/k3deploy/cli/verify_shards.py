"""`k3deploy verify-shards`: prove the weights on every node or in a folder here, name each bad file, fetch it again."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from k3deploy.cli.options import DEFAULT_NODES, NodesPath, Output, OutputFormat, RunIdOption, StoreUrl, options_again
from k3deploy.cli.output import show, table

if TYPE_CHECKING:
    from k3deploy.domain.proof_level import ProofLevel
    from k3deploy.domain.shard_report import ShardReport


def register(app: typer.Typer) -> None:
    app.command(name="verify-shards")(verify_shards)


def verify_shards(
    quick: bool = typer.Option(False, "--quick", help="Sizes, links, headers and index only: no shard is hashed."),
    no_cache: bool = typer.Option(False, "--no-cache", help="Hash everything, also what an earlier proof covers."),
    repair: bool = typer.Option(False, "--repair", help="Move bad files aside and fetch only them again."),
    node: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--node", metavar="NAME", help="Only this node; may be given several times."),
    ] = None,
    local: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option(
            "--local",
            metavar="PATH",
            help="A folder here instead of nodes: a Hugging Face home, a models--... folder of it, a snapshot, or "
            "plain files.",
        ),
    ] = None,
    manifest: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--manifest", metavar="FILE", help="With --local: the list of files, instead of the hub's."),
    ] = None,
    profile: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--profile", "-p", metavar="NAME|PATH", help="Whose weights; default: those of the latest run."),
    ] = None,
    run_id: RunIdOption = None,
    nodes: NodesPath = DEFAULT_NODES,
    store: StoreUrl = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Prove the weights: hash what no earlier proof covers. Exit code 0: right, 4: a file is bad, 3: cannot tell."""
    from k3deploy.domain.errors import UsageError
    from k3deploy.domain.proof_level import ProofLevel
    from k3deploy.domain.shard_report import HEADER

    if quick and (repair or no_cache):
        raise UsageError(
            what=f"--quick and {'--repair' if repair else '--no-cache'} exclude each other",
            why="a quick look hashes no shard, and only what was hashed and found wrong is moved aside",
            fix="leave --quick out",
        )
    if profile is not None and run_id is not None:
        raise UsageError(what="--profile and --run-id exclude each other", fix="leave one of them out")
    if manifest is not None and local is None:
        raise UsageError(
            what="--manifest goes with --local", why="nodes have the list of their run", fix="leave it out"
        )
    if local is not None and (node or run_id):
        raise UsageError(what="--local and --node or --run-id exclude each other", fix="leave one of them out")

    level = ProofLevel.QUICK if quick else ProofLevel.ANEW if no_cache else ProofLevel.KNOWN
    if local is not None:
        from k3deploy.cli.verify_local import look_here

        report = look_here(local, manifest, profile, level, repair=repair)
    else:
        report = _look_there(_Nodes(profile, run_id, nodes, store, tuple(node or ())), level, repair=repair)
    text = "\n".join([*report.head(), "", table(HEADER, report.rows()), "", *report.notes(), report.headline])
    show(output, report.as_dict(), text)
    return int(report.exit_code)


@dataclass(frozen=True)
class _Nodes:
    """Which run's, as it was typed."""

    profile: str | None
    run_id: str | None
    path: Path
    store: str | None
    names: tuple[str, ...]

    @property
    def options(self) -> str:
        return "".join(f" --node {shlex.quote(name)}" for name in self.names) + options_again(self.path, self.store)


def _look_there(typed: _Nodes, level: "ProofLevel", *, repair: bool) -> "ShardReport":
    from k3deploy.cli import wiring
    from k3deploy.cli.interrupt import stop_on_signal
    from k3deploy.domain.errors import UsageError
    from k3deploy.flows.deploy import deploy_phases
    from k3deploy.flows.verify import Look, chosen, repair_shards, verify_shards

    place = wiring.open_place(typed.path, typed.store)
    if typed.profile is None:
        begun = wiring.locked(place, place.choose(typed.run_id))
    else:
        begun = wiring.begin(place, typed.profile, None)
    has_run = not begun.is_new and begun.record.is_live
    again = f"k3deploy verify-shards --repair{typed.options}"
    if not has_run:
        profile = shlex.quote(typed.profile or begun.profile.name)
        again = f"k3deploy up --profile {profile} --until weights-verify{options_again(typed.path, typed.store)}"
        if repair:
            raise UsageError(
                what="there is no live run on these nodes, so nothing can be repaired",
                why="files are fetched by the steps of a run, of which a teardown then knows what they left",
                fix=again,
            )
    with wiring.open_session(begun, place, is_dry=not repair) as opened:
        look = Look(level, chosen(opened.session, typed.names), again, has_run=has_run)
        try:
            with stop_on_signal(
                opened.cancel, lambda: "stopping; the hashing goes on there, and can be followed again"
            ):
                report = verify_shards(opened.session, look)
                if repair and report.needs_repair:
                    report = repair_shards(opened.session, look, report, deploy_phases(opened.session))
        finally:
            opened.console.close()
    return report
