"""Launches as one script for people: copied to every node and called with the node's name, it starts that rank."""

from collections.abc import Iterator, Sequence

from k3deploy.domain.command import pasteable
from k3deploy.domain.launch.base import Launch


def script(launches: Sequence[Launch], notes: Sequence[str]) -> str:
    """POSIX sh. Node names hold letters, digits, dots and dashes only, so they are safe as patterns."""
    return "\n".join(_lines(launches, notes)) + "\n"


def _lines(launches: Sequence[Launch], notes: Sequence[str]) -> Iterator[str]:
    yield "#!/bin/sh"
    yield "# Starts one rank by hand: sh THIS_FILE NODE. In each replica start node_rank 0 first, then the others."
    for note in notes:
        yield f"# {note}"
    yield "set -eu"
    yield 'case "${1:-}" in'
    for launch in launches:
        yield f"{launch.node}) # replica {launch.replica}, node_rank {launch.node_rank} of {launch.node_count}"
        for path in launch.secret_files:
            yield f'# {path} has to be there, mode 0600, with the line: api-key: "KEY"'
        yield pasteable(_chunks(launch))
        yield ";;"
    yield "*)"
    yield (
        pasteable([["echo", "usage: sh FILE NODE, with one of:", *(str(launch.node) for launch in launches)]]) + " >&2"
    )
    yield "exit 2"
    yield ";;"
    yield "esac"


def _chunks(launch: Launch) -> list[list[str]]:
    """One option with its value a line, as people write it."""
    return [
        ["docker", "run"],
        *(list(option.words) for option in launch.docker_options),
        *(["--env", f"{variable.name}={variable.value}"] for variable in launch.environment),
        [launch.image],
        list(launch.program),
        *(list(flag.words) for flag in launch.flags),
    ]
