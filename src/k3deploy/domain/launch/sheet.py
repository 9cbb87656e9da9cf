"""A launch as a sheet for people: one fact a line, its source beside it, so that a diff shows the one that moved."""

from collections.abc import Callable

from k3deploy.domain.launch.base import Launch

_WIDTH = 56

Explain = Callable[[str], str]


def sheet(launch: Launch, explain: Explain = str) -> str:
    """The launch line by line; variables are sorted. `explain` turns a source into what is shown for it."""
    rows = [
        *(("option", " ".join(option.words), option.source) for option in launch.docker_options),
        *(("env", f"{var.name}={var.value}", var.source) for var in sorted(launch.environment, key=lambda v: v.name)),
        *(("secret", path, "by 0600 file") for path in launch.secret_files),
        ("image", launch.image, "profile:engine.image"),
        ("program", " ".join(launch.program), "engine"),
        *(("arg", " ".join(flag.words), flag.source) for flag in launch.flags),
    ]
    head = (
        f"replica {launch.replica}   node {launch.node}   node_rank {launch.node_rank} of {launch.node_count}   "
        f"engine {launch.engine}   container {launch.container}"
    )
    return "\n".join([head, *(_line(kind, text, explain(source)) for kind, text, source in rows)]) + "\n"


def _line(kind: str, text: str, source: str) -> str:
    return f"{kind:<8}{text:<{_WIDTH}}  {source}".rstrip()
