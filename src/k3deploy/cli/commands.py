"""The list of commands, in the order that --help shows them."""

import typer


def register(app: typer.Typer) -> None:
    """Add every command. Each module's `register(app)` adds its own."""
