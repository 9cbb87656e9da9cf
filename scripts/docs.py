#!/usr/bin/env python3
"""Write the generated pages of docs/reference from the code, or with --check fail when one is out of date."""

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from k3deploy.adapters import profiles
from k3deploy.cli.app import app, register_commands
from k3deploy.domain import errors, events
from k3deploy.domain.holdings import TeardownOptions
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.launch.placeholder import placeholder_nodes
from k3deploy.domain.names import RunId
from k3deploy.domain.nodes_file import NodesFile
from k3deploy.domain.profile.models import Profile, Release
from k3deploy.domain.run import RunRecord
from k3deploy.domain.topology import assign
from k3deploy.flows.deploy import deploy_phases
from k3deploy.flows.session import Session
from k3deploy.flows.teardown import teardown_phases
from k3deploy.runner.graph import AnyPhase
from k3deploy.runner.survey import BatchingSurvey
from k3deploy.testing import FakeWheelhouse, Recorder, services

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
NOTICE = "<!-- Written by scripts/docs.py from the code. Do not edit. -->\n\n"


def cli_page() -> str:
    register_commands()
    root = typer.main.get_command(app)
    parts = ["# Commands\n"]
    for path, command in _commands(root, ("k3deploy",)):
        context = typer.Context(command, info_name=" ".join(path), terminal_width=100)
        parts.append(f"## `{' '.join(path)}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    return "\n".join(parts)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    if isinstance(command, typer.core.TyperGroup):
        for name, child in command.commands.items():
            if not child.hidden:
                yield from _commands(child, (*path, name))


def model_page(title: str, intro: str, root: type[BaseModel]) -> str:
    parts = [f"# {title}\n", intro + "\n"]
    for model in _models(root):
        parts.append(f"## {model.__name__}\n\n{inspect.cleandoc(model.__doc__ or '')}\n")
        parts.append("| key | type | default |\n| --- | --- | --- |")
        for name, field in model.model_fields.items():
            parts.append(f"| `{field.alias or name}` | {_type_text(field.annotation)} | {_default_text(field)} |")
        parts.append("")
    return "\n".join(parts)


def _models(root: type[BaseModel]) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []

    def visit(annotation: object) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation not in found:
                found.append(annotation)
                for field in annotation.model_fields.values():
                    visit(field.annotation)
            return
        for inner in typing.get_args(annotation):
            visit(inner)

    visit(root)
    return found


def _type_text(annotation: object) -> str:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if part is type(None) else _type_text(part) for part in inner)
    if origin is typing.Literal:
        return " or ".join(f"`{part}`" for part in inner)
    if origin is typing.Annotated:
        return _type_text(inner[0])
    if origin is tuple:
        return f"list of {_type_text(inner[0])}"
    if origin is dict:
        return f"map to {_type_text(inner[1])}"
    return str(annotation)


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return "see below"
    return "null" if default is None else f"`{default}`"


def errors_page() -> str:
    rows = ["# Errors\n", "Every error says what / why / fix. `code` and the exit code are stable.\n"]
    rows.append("| code | class | exit | tried again | meaning |\n| --- | --- | --- | --- | --- |")
    for kind in _subclasses(errors.K3Error):
        meaning = inspect.cleandoc(kind.__doc__ or "").split("\n")[0]
        again = "yes" if kind.transient else "no"
        rows.append(f"| {kind.code} | {kind.__name__} | {kind.exit_code} | {again} | {meaning} |")
    return "\n".join(rows) + "\n"


def exit_codes_page() -> str:
    rows = ["# Exit codes\n", "| code | meaning |\n| --- | --- |"]
    rows += [f"| {code.value} | {code.meaning} |" for code in errors.ExitCode]
    return "\n".join(rows) + "\n"


def events_page() -> str:
    parts = ["# Events\n", inspect.cleandoc(events.__doc__ or "") + "\n"]
    for kind in events.EVENT_TYPES:
        parts.append(f"## {kind.__name__}\n")
        doc = kind.__doc__ or ""
        if doc and not doc.startswith(kind.__name__ + "("):
            parts.append(inspect.cleandoc(doc) + "\n")
        parts += [f"- `{field.name}`: {_type_text(_hint(kind, field.name))}" for field in dataclasses.fields(kind)]
        parts.append("")
    return "\n".join(parts)


def phases_page() -> str:
    """The phases as the flows build them for a shipped profile; nothing is asked of anybody."""
    profile = profiles.load_profile("h100x32").model_copy(update={"release": Release(argv=("release",))})
    nodes = placeholder_nodes(profile)
    svc = services()
    session = Session(
        record=RunRecord(RunId("run"), profile.name, {}, 0.0, None),
        profile=profile,
        nodes_file=nodes,
        topology=assign(profile, nodes),
        svc=svc,
        survey=BatchingSurvey(svc.nodes),
        sink=Recorder(),
        option_lists=OptionLists(),
        wheelhouse=FakeWheelhouse(),
    )
    everything = TeardownOptions(purges_weights=True, restores=True)
    return "\n".join(
        [
            "# Phases\n",
            "A phase starts on a target when the phases it needs are done wherever they share a node with it.\n",
            "## `k3deploy up`\n\n`--until PHASE` takes these names.\n",
            _phase_table(deploy_phases(session)),
            "## `k3deploy teardown --confirm --purge-weights --restore`\n",
            "Without the options their phases are left out; `release` is there when the profile names a command.\n",
            _phase_table(teardown_phases(session, everything)),
        ]
    )


def _phase_table(phases: Sequence[AnyPhase]) -> str:
    rows = ["| phase | does | about | of each | needs |", "| --- | --- | --- | --- | --- |"]
    for phase in phases:
        first = inspect.cleandoc(sys.modules[type(phase).__module__].__doc__ or "").split("\n\n")[0]
        means = " ".join(first.partition(": ")[2].split()).removesuffix(".")
        needs = ", ".join(f"`{need}`" for need in phase.needs) or "nothing"
        rows.append(f"| `{phase.name}` | {phase.title} | {means} | {phase.targets()[0].kind} | {needs} |")
    return "\n".join(rows) + "\n"


def _hint(kind: type, name: str) -> object:
    return typing.get_type_hints(kind)[name]


def _subclasses(kind: type[errors.K3Error]) -> Iterator[type[errors.K3Error]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _subclasses(child)


def pages() -> dict[str, str]:
    return {
        "cli.md": cli_page(),
        "profile.md": model_page(
            "Profile",
            "A YAML file. Unknown keys are errors. `k3deploy profiles show NAME` prints a shipped one.",
            Profile,
        ),
        "nodes.md": model_page("nodes.yaml", "Written by `k3deploy init`. Unknown keys are errors.", NodesFile),
        "errors.md": errors_page(),
        "exit-codes.md": exit_codes_page(),
        "events.md": events_page(),
        "phases.md": phases_page(),
    }


def main() -> int:
    is_check = sys.argv[1:] == ["--check"]
    stale = []
    for name, body in pages().items():
        path, text = REFERENCE / name, NOTICE + body.rstrip() + "\n"
        if is_check:
            if not path.exists() or path.read_text("utf-8") != text:
                stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if stale:
        print(f"error: out of date in docs/reference: {', '.join(stale)}\n  fix: scripts/docs.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
