"""The list of commands, in the order that --help shows them."""

import typer


def register(app: typer.Typer) -> None:
    """Add every command. Each module's `register(app)` adds its own."""
    from k3deploy.cli import init, logs, profiles, render, status, teardown, trust, up, verify_shards, wheelhouse

    for module in (up, verify_shards, status, logs, teardown, init, trust, render, profiles, wheelhouse):
        module.register(app)
