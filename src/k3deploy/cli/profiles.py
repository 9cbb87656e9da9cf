"""`k3deploy profiles list | show | validate`."""

from typing import TYPE_CHECKING, Any

import typer

from k3deploy.cli.group import help_when_alone
from k3deploy.cli.options import Output, OutputFormat, ProfileArgument, ProfileArguments, Settings
from k3deploy.cli.output import show

if TYPE_CHECKING:
    from k3deploy.domain.faults import Fault
    from k3deploy.domain.profile.models import Profile


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="What can be deployed, and where its numbers come from.", rich_markup_mode=None)
    group.callback(invoke_without_command=True)(help_when_alone)
    group.command(name="list")(list_profiles)
    group.command(name="show")(show_profile)
    group.command(name="validate")(validate)
    app.add_typer(group, name="profiles")


def list_profiles(output: Output = OutputFormat.TEXT) -> None:
    """List the profiles that --profile can name. Each with its nodes, price, and who verified it."""
    from k3deploy.adapters import profiles
    from k3deploy.domain.errors import ProfileError

    where = profiles.places()
    data: list[dict[str, Any]] = []
    for found in profiles.listing(where):
        entry: dict[str, Any] = {"name": found.name, "place": found.place, "path": str(found.path)}
        try:
            data.append(entry | _facts(profiles.load(found.name, where=where).profile))
        except ProfileError as error:
            data.append(entry | {"error": error.as_dict()})
    show(output, data, "\n".join(_block(entry) for entry in data))


def show_profile(
    name: ProfileArgument,
    settings: Settings = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show a profile with every value written out. Each with the file and line that it comes from."""
    from k3deploy.adapters import profiles
    from k3deploy.domain.profile.annotated import annotated

    loaded = profiles.load(name, settings or ())
    body = {
        "profile": loaded.profile.model_dump(mode="json", by_alias=True),
        "sources": dict(loaded.sources),
        "warnings": [fault.as_dict() for fault in loaded.warnings],
    }
    show(output, body, annotated(loaded.profile, loaded.sources) + _warnings_text(loaded.warnings))


def validate(
    names: ProfileArguments,
    settings: Settings = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Check profiles; no node is asked. Exit code 1 when one of them cannot be right."""
    from k3deploy.adapters import profiles
    from k3deploy.domain.errors import ProfileError, ProfileFaults

    good: list[dict[str, Any]] = []
    texts: list[str] = []
    errors: list[ProfileError] = []
    for name in names:
        try:
            loaded = profiles.load(name, settings or ())
        except ProfileError as error:
            errors.append(error)
        else:
            good.append({"name": name, "warnings": [fault.as_dict() for fault in loaded.warnings]})
            texts.append(f"{name}: good\n{_warnings_text(loaded.warnings)}")
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ProfileFaults(
            failures=errors,
            what=f"{len(errors)} of {len(names)} profiles cannot be used",
            fix="correct them and try again; nothing was touched",
        )
    show(output, good, "".join(texts))


def _facts(profile: "Profile") -> dict[str, Any]:
    gpu, per_node = profile.hardware.gpu.model, profile.hardware.gpus_per_node
    return {
        "description": profile.description,
        "nodes": profile.node_count,
        "gpus": profile.node_count * per_node,
        "gpu": gpu,
        "replicas": sum(pool.replicas.count for pool in profile.pools),
        "usd_per_hour": profile.usd_per_hour,
        "source": profile.provenance.source,
        "verified_by": profile.provenance.verified_by,
    }


def _block(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"{entry['name']:<18}cannot be used: k3deploy profiles validate {entry['name']}   ({entry['place']})\n"
    price = "price unknown" if entry["usd_per_hour"] is None else f"${entry['usd_per_hour']:.2f}/h"
    nodes = f"{entry['nodes']} node{'s' if entry['nodes'] > 1 else ''}"
    return (
        f"{entry['name']:<18}{nodes}, {entry['gpus']} x {entry['gpu']}, {price}   ({entry['place']})\n"
        f"  {entry['description']}\n"
        f"  verified by: {entry['verified_by']}\n"
    )


def _warnings_text(warnings: "tuple[Fault, ...]") -> str:
    lines: list[str] = []
    for fault in warnings:
        lines.append(f"warning: {fault.what}")
        lines += [f"  {name}: {value}" for name, value in fault.context().items()]
        lines.append(f"  fix: {fault.fix}")
    return "\n".join(lines) + "\n" if lines else ""
