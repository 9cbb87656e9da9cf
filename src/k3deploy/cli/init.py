"""`k3deploy init`: write nodes.yaml from the addresses of the machines. No machine is asked."""

from typing import Annotated, Any, Optional

import typer

from k3deploy.cli.options import DEFAULT_NODES, NodesPath, Output, OutputFormat
from k3deploy.cli.output import show


def register(app: typer.Typer) -> None:
    app.command(name="init")(init)


def init(
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=][USER@]ADDRESS[:PORT]...",
            help="One for each machine, in the order of the ranks: the first is the head.",
        ),
    ],
    user: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--user", "-u", metavar="NAME", help="Who logs in; default: what ~/.ssh/config says."),
    ] = None,
    key: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--key", "-i", metavar="PATH", help="The private key file; default: agent, ~/.ssh/config."),
    ] = None,
    jump: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--jump", "-J", metavar="[USER@]HOST[:PORT]", help="The machine to go through."),
    ] = None,
    private_address: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--private-address", metavar="ADDRESS", help="Once for each machine, in the same order."),
    ] = None,
    pool: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--pool", metavar="NAME", help="The pool of the profile that all of them belong to."),
    ] = None,
    nodes: NodesPath = DEFAULT_NODES,
    force: Annotated[bool, typer.Option("--force", help="Replace a nodes file that exists.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Write the nodes file from the addresses of your machines."""
    from k3deploy.adapters import nodes_file as adapter
    from k3deploy.domain import nodes_file
    from k3deploy.domain.errors import ProfileError
    from k3deploy.domain.nodes_text import nodes_text
    from k3deploy.domain.yaml_text import Document

    private = private_address or []
    if private and len(private) != len(addresses):
        raise ProfileError(
            what="there is not one private address for each machine",
            fix="give --private-address once for each address, in the same order, or leave it out",
            context={"found": f"{len(private)} private addresses", "wanted": str(len(addresses))},
        )
    shared = {"user": user, "key": key, "jump": jump, "pool": pool}
    entries: list[dict[str, Any]] = []
    for index, text in enumerate(addresses):
        entry: dict[str, Any] = {"name": f"node-{index + 1}", **shared, **_parse(text)}
        if private:
            entry["private_address"] = private[index]
        entries.append({name: value for name, value in entry.items() if value is not None})
    found = nodes_file.load(Document("the command line", {"nodes": entries}))
    adapter.save(nodes, nodes_text(found), may_replace=force)
    count = len(found.nodes)
    text = (
        f"wrote {nodes}: {count} node{'s' if count > 1 else ''}, {', '.join(node.name for node in found.nodes)}\n"
        "next: k3deploy trust --all    (shows their host keys; pins those that you name)\n"
        "then: k3deploy up --profile NAME    (k3deploy profiles list shows the names)\n"
    )
    show(output, {"path": str(nodes), "nodes": found.model_dump(mode="json")["nodes"]}, text)


def _parse(text: str) -> dict[str, Any]:
    """`gpu-1=ubuntu@203.0.113.7:2222` -> name, user, address, port; each part but the address may be absent."""
    found: dict[str, Any] = {}
    name, equals, rest = text.rpartition("=")
    if equals:
        found["name"] = name
    user, at, rest = rest.rpartition("@")
    if at:
        found["user"] = user
    host, colon, port = rest.rpartition(":")
    if host.startswith("[") and rest.endswith("]"):
        host, colon = rest, ""
    is_port = bool(colon) and port.isdigit() and (":" not in host or host.endswith("]"))
    found["address"] = (host if is_port else rest).removeprefix("[").removesuffix("]")
    if is_port:
        found["port"] = int(port)
    return found
