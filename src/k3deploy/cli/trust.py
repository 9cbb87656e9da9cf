"""`k3deploy trust`: look at a machine's host key and, when you name its fingerprint, pin it in the nodes file."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from k3deploy.cli.options import DEFAULT_NODES, NodesPath, Output, OutputFormat
from k3deploy.cli.output import show, table
from k3deploy.domain.errors import HostKeyError, K3Error, NotConfirmed, PhaseFailed, ProfileError, UsageError

if TYPE_CHECKING:
    from k3deploy.adapters.ssh.host_key import HostKey
    from k3deploy.domain.nodes_file import NodeEntry

Fingerprints = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option(
        "--fingerprint",
        metavar="SHA256:...",
        help="The key to accept, as the provider's console shows it; may be given several times.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command(name="trust")(trust)


def trust(
    node: Annotated[Optional[str], typer.Argument(metavar="NODE", help="Its name in the nodes file.")] = None,  # noqa: UP045
    every: bool = typer.Option(False, "--all", help="All nodes of the nodes file."),
    fingerprint: Fingerprints = None,
    nodes: NodesPath = DEFAULT_NODES,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show a node's host keys, or pin the one you name. No login, and nothing else is changed."""
    from k3deploy.adapters.nodes_file import load_nodes

    found = load_nodes(nodes)
    entries = _chosen(found.nodes, node, every=every)
    with ThreadPoolExecutor(min(32, len(entries))) as pool:
        looks = list(pool.map(_look, entries))
    accepted = {_plain(text) for text in fingerprint or ()}
    for look in looks:
        look.accept(accepted)
    _write(nodes, looks)
    body = [look.as_dict() for look in looks]
    try:
        _complain(looks, accepted)
    except K3Error as error:
        if output is OutputFormat.JSON:  # one document: the error carries what was seen
            error.context["nodes"] = body
        else:
            show(output, body, _text(looks))
        raise
    show(output, body, _text(looks))


@dataclass
class _Look:
    """What one machine showed. `chosen` is the key that is to be pinned."""

    entry: "NodeEntry"
    keys: "list[HostKey]"
    failure: K3Error | None = None
    chosen: "HostKey | None" = None

    @property
    def pinned(self) -> "HostKey | None":
        return next((key for key in self.keys if self.entry.host_key and key.line == _two_words(self.entry)), None)

    def accept(self, accepted: set[str]) -> None:
        self.chosen = next((key for key in self.keys if _plain(key.fingerprint) in accepted), None)

    def state_of(self, key: "HostKey") -> str:
        if key == self.pinned:
            return "pinned"
        return "pinned now" if key == self.chosen else ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "node": self.entry.name,
            "address": self.entry.address,
            "keys": [
                {"type": key.kind, "fingerprint": key.fingerprint, "state": self.state_of(key) or "shown"}
                for key in self.keys
            ],
            "error": self.failure.as_dict() if self.failure else None,
        }


def _chosen(entries: "tuple[NodeEntry, ...]", node: str | None, *, every: bool) -> "tuple[NodeEntry, ...]":
    if every == (node is not None):
        raise UsageError(what="name one node, or say --all", fix="k3deploy trust NODE, or k3deploy trust --all")
    chosen = tuple(entry for entry in entries if every or entry.name == node)
    if not chosen:
        raise ProfileError(
            what=f"the nodes file has no node {node}", fix="use one of: " + ", ".join(entry.name for entry in entries)
        )
    return chosen


def _look(entry: "NodeEntry") -> _Look:
    from k3deploy.adapters.ssh.shown_keys import shown_keys

    try:
        return _Look(entry, shown_keys(entry))
    except K3Error as error:
        return _Look(entry, [], failure=error)


def _write(path: Path, looks: list[_Look]) -> None:
    from k3deploy.adapters import text_files
    from k3deploy.adapters.pin_host_key import pin_host_key

    changes = [look for look in looks if look.chosen is not None and look.chosen != look.pinned]
    if not changes:
        return
    text = path.read_text("utf-8")
    for look in changes:
        assert look.chosen is not None  # noqa: S101 - filtered above
        try:
            text = pin_host_key(text, look.entry.name, look.chosen.line)
        except ValueError as err:
            raise ProfileError(
                what=f"the host key of {look.entry.name} was not written to {path}",
                why=str(err),
                fix=f"add this to its entry by hand: host_key: {look.chosen.line}",
            ) from err
    text_files.write(path, text)


def _text(looks: list[_Look]) -> str:
    rows = [(look.entry.name, key.kind, key.fingerprint, look.state_of(key)) for look in looks for key in look.keys]
    return table(("node", "type", "fingerprint", ""), rows) if rows else ""


def _complain(looks: list[_Look], accepted: set[str]) -> None:
    """Raise for what is not settled: machines that did not answer, fingerprints that fit nothing, keys not named."""
    failures = [look.failure for look in looks if look.failure is not None]
    strangers = [look for look in looks if look.failure is None and not look.chosen and not look.pinned]
    if accepted:
        failures += [_no_such_key(look) for look in looks if look.failure is None and not look.chosen]
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise PhaseFailed(
            failures=failures, what=f"{len(failures)} machines are not trusted", fix="see each machine's own fix above"
        )
    if strangers and not accepted:
        words = " ".join(f"--fingerprint {look.keys[0].fingerprint}" for look in strangers if look.keys)
        which = strangers[0].entry.name if len(looks) == 1 else "--all"
        changed = [look.entry.name for look in strangers if look.entry.host_key]
        why = "only you can tell the right machine from another one that answers at its address"
        if changed:
            why = (
                f"{', '.join(changed)}: not the key on record. The machine was replaced, or this is another one; {why}"
            )
        raise NotConfirmed(
            what="nothing was pinned: no fingerprint was given",
            why=why,
            fix=f"compare with the provider's console, then run: k3deploy trust {which} {words}",
        )


def _no_such_key(look: _Look) -> HostKeyError:
    return HostKeyError(
        what=f"{look.entry.name}: it shows no key with this fingerprint",
        why="it is another machine than the one you mean, or the fingerprint is mistyped; nothing was changed for it",
        fix="compare again with the provider's console",
        context={"node": look.entry.name, "found": ", ".join(str(key) for key in look.keys)},
    )


def _plain(fingerprint: str) -> str:
    return fingerprint.strip().removeprefix("SHA256:").rstrip("=")


def _two_words(entry: "NodeEntry") -> str:
    return " ".join((entry.host_key or "").split()[:2])
