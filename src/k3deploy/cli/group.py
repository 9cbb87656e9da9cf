"""A command that only groups others: typed alone it shows what there is, and exits as one that was told nothing."""

import sys

import typer

from k3deploy.domain.errors import UsageError


def help_when_alone(context: typer.Context) -> None:
    """For a callback with `invoke_without_command`. Raises typer.Exit when no subcommand was given."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(UsageError.exit_code)
