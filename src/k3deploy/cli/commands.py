"""The list of commands, in the order that --help shows them."""

import typer


def register(app: typer.Typer) -> None:
    """Add every command. Each module's `register(app)` adds its own."""
    from k3deploy.cli import init, logs, profiles, render, status, teardown, trust, up

    for module in (up, status, logs, teardown, init, trust, render, profiles):
        module.register(app)
