"""`k3deploy render`: the exact command and environment of each rank, with the source of every value."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from k3deploy.cli.options import DEFAULT_NODES, Output, OutputFormat, ProfileName, Settings
from k3deploy.cli.output import show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from k3deploy.domain.launch.base import Launch
    from k3deploy.domain.launch.option_list import FlagCheck, OptionLists
    from k3deploy.domain.nodes_file import NodesFile
    from k3deploy.domain.profile.models import Profile


def register(app: typer.Typer) -> None:
    app.command(name="render")(render)


def render(
    profile: ProfileName,
    nodes: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option(
            "--nodes",
            metavar="PATH",
            help="The nodes file; default: nodes.yaml if there is one, else placeholder names.",
        ),
    ] = None,
    replica: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--replica", metavar="NAME", help="Only this replica, such as serve-0."),
    ] = None,
    as_script: Annotated[bool, typer.Option("--script", help="Print a script that could be run by hand.")] = False,
    settings: Settings = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print what each rank would be started with. Every value has its source; no node is asked."""
    from k3deploy.adapters import engines, profiles
    from k3deploy.domain.errors import UsageError
    from k3deploy.domain.launch.as_data import launch_data
    from k3deploy.domain.launch.script import script
    from k3deploy.domain.launch.sheet import sheet

    if as_script and output is OutputFormat.JSON:
        raise UsageError(what="--script and --output json exclude each other", fix="leave one of them out")
    loaded = profiles.load(profile, settings or ())
    nodes_file = _nodes_file(nodes)
    launches = _launches(loaded.profile, nodes_file, str(nodes or DEFAULT_NODES), replica)
    check = _check(loaded.profile, launches, engines.option_lists(loaded.profile.engine.name))
    notes = _notes(loaded.profile, launches, check, has_nodes=nodes_file is not None)
    data = {
        "profile": loaded.profile.name,
        "notes": notes,
        "flags": {"status": check.status, "version": check.version},
        "launches": [launch_data(launch) for launch in launches],
    }
    if as_script:
        show(output, data, script(launches, notes))
        return
    sheets = [sheet(launch, _explainer(loaded.sources)) for launch in launches]
    text = "\n".join(["".join(f"# {note}\n" for note in notes), *sheets])
    show(output, data, text)


def _nodes_file(path: Path | None) -> "NodesFile | None":
    from k3deploy.adapters.nodes_file import load_nodes

    if path is None and not DEFAULT_NODES.exists():
        return None
    return load_nodes(path or DEFAULT_NODES)


def _launches(
    profile: "Profile", nodes_file: "NodesFile | None", nodes_name: str, replica: str | None
) -> "Sequence[Launch]":
    from k3deploy.domain.errors import ProfileError
    from k3deploy.domain.launch.placeholder import placeholder_addresses, placeholder_nodes
    from k3deploy.domain.launch.render import image_reference, render
    from k3deploy.domain.names import RunId
    from k3deploy.domain.run_folder import RunFolder
    from k3deploy.domain.topology import assign

    nodes = nodes_file or placeholder_nodes(profile)
    topology = assign(profile, nodes, nodes_name)
    launches = render(
        profile,
        topology,
        placeholder_addresses(topology, nodes),
        image=image_reference(profile.engine),
        key_file=RunFolder(profile.storage.mount, RunId("RUN_ID")).api_key if profile.network.api == "public" else None,
    )
    if replica is None:
        return launches
    chosen = [launch for launch in launches if launch.replica == replica]
    if not chosen:
        raise ProfileError(
            what=f"{profile.name} has no replica {replica}",
            fix="name one of its replicas, or leave --replica out",
            context={"found": replica, "wanted": ", ".join(item.name for item in topology.replicas)},
        )
    return chosen


def _check(profile: "Profile", launches: "Sequence[Launch]", lists: "OptionLists") -> "FlagCheck":
    """Against the newest known release that the profile allows: the image's own release is read before a launch."""
    from k3deploy.domain.faults import Fault, raise_if_any
    from k3deploy.domain.launch.option_list import FlagCheck
    from k3deploy.domain.versions import VersionRange

    options = lists.newest_in(VersionRange.parse(profile.engine.versions))
    if options is None:
        return FlagCheck("unchecked", profile.engine.versions)
    check = options.check([flag for launch in launches for flag in launch.flags])
    faults = [Fault(p.what, p.fix, found=p.found, wanted=p.wanted, at=f"render {profile.name}") for p in check.errors]
    raise_if_any(faults, profile.name)
    return check


def _notes(profile: "Profile", launches: "Sequence[Launch]", check: "FlagCheck", *, has_nodes: bool) -> list[str]:
    name = profile.engine.name
    notes = [
        f"flags checked against {name} {check.version}; the image's own release is read before a launch"
        if check.status == "checked"
        else f"flags unchecked: there is no option list of {name} {check.version}"
    ]
    if profile.engine.digest is None:
        notes.append("the image is named by its tag; a run settles its digest at the first pull and starts by digest")
    if not has_nodes:
        notes.append("no nodes file: names, addresses and interfaces are placeholders, and no RDMA port is assumed")
    elif any(launch.node_count > 1 for launch in launches):
        notes.append("interfaces, RDMA ports and addresses that the nodes file lacks are found on the nodes by a run")
    return notes


def _explainer(sources: "Mapping[str, str]") -> "Callable[[str], str]":
    """`profile:engine.shm_size` -> `engine.shm_size (FILE:LINE)`, where somebody wrote it."""

    def explain(source: str) -> str:
        kind, _, path = source.partition(":")
        where = sources.get(path) if kind == "profile" else None
        return source if where is None else f"{path} ({where})"

    return explain
