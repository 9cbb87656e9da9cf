"""The list of commands, in the order that --help shows them."""

import typer


def register(app: typer.Typer) -> None:
    """Add every command. Each module's `register(app)` adds its own."""
    from k3deploy.cli import init, profiles, render, trust

    for module in (init, trust, profiles, render):
        module.register(app)
