"""The list of commands, in the order that --help shows them."""

import typer


def register(app: typer.Typer) -> None:
    """Add every command. Each module's `register(app)` adds its own."""
    from k3deploy.cli import init, profiles, render, status, trust, up

    for module in (up, status, init, trust, render, profiles):
        module.register(app)
