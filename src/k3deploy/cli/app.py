"""The root command and the one error boundary: whatever goes wrong below ends here as what / why / fix and a code."""

import sys
from collections.abc import Sequence
from itertools import pairwise

import typer

from k3deploy import __version__
from k3deploy.cli.group import help_when_alone
from k3deploy.cli.streams import mute, steady_streams
from k3deploy.domain.errors import Bug, Interrupted, K3Error, UsageError

app = typer.Typer(
    name="k3deploy",
    help="From bare rented GPU nodes to a Kimi K3 endpoint that has proved it answers rightly.",
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    if version:
        print(f"k3deploy {__version__}")
        raise typer.Exit
    help_when_alone(context)


def register_commands() -> None:
    """Hang every command on the root, once."""
    if app.registered_commands or app.registered_groups:
        return
    # Imported here, in the order that --help shows them; each module is light and imports its flow when called.
    from k3deploy.cli import commands

    commands.register(app)


def run(argv: Sequence[str]) -> int:
    """Run the command line. Returns the exit code (docs/reference/exit-codes.md); never raises."""
    with steady_streams():
        return _run(argv)


def _run(argv: Sequence[str]) -> int:
    from k3deploy.cli.failure import report

    wants_json = _wants_json(argv)
    try:
        register_commands()
        code = typer.main.get_command(app).main(args=list(argv), prog_name="k3deploy", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Abort:
        return report(Interrupted(what="interrupted", fix="run the same command again"), wants_json=wants_json)
    except typer.TyperException as error:
        return report(_usage(error), wants_json=wants_json)
    except K3Error as error:
        return report(error, wants_json=wants_json)
    except KeyboardInterrupt:
        return report(Interrupted(what="interrupted", fix="run the same command again"), wants_json=wants_json)
    except BrokenPipeError:
        mute(sys.stdout)  # the reader of our output left, as `head` does; there is nobody to tell
        return 0
    except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours is said so, with the trace in a file
        return report(Bug.of(error), wants_json=wants_json)


def _usage(error: typer.TyperException) -> UsageError:
    context = getattr(error, "ctx", None)  # set where the parser knows which command was being read
    command = context.command_path if context is not None else "k3deploy"
    return UsageError(what=error.format_message(), fix=f"`{command} --help` shows what it takes")


def _wants_json(argv: Sequence[str]) -> bool:
    """In each spelling that the parser takes; it may not have got so far when something is wrong."""
    return (
        "--output=json" in argv
        or "-ojson" in argv
        or any(flag in ("--output", "-o") and value == "json" for flag, value in pairwise(argv))
    )
