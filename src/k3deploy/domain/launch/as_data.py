"""A launch as JSON: the documented shape of `k3deploy render --output json`."""

from typing import Any

from k3deploy.domain.launch.base import Flag, Launch


def launch_data(launch: Launch) -> dict[str, Any]:
    """Everything of the launch, with the complete `argv` beside the parts it is made of."""
    return {
        "replica": launch.replica,
        "node": launch.node,
        "node_rank": launch.node_rank,
        "node_count": launch.node_count,
        "engine": launch.engine,
        "container": launch.container,
        "image": launch.image,
        "docker_options": [_flag_data(option) for option in launch.docker_options],
        "environment": [{"name": v.name, "value": v.value, "source": v.source} for v in launch.environment],
        "program": list(launch.program),
        "flags": [_flag_data(flag) for flag in launch.flags],
        "secret_files": list(launch.secret_files),
        "argv": list(launch.argv),
    }


def _flag_data(flag: Flag) -> dict[str, Any]:
    return {"name": flag.name, "values": list(flag.words[1:]), "source": flag.source}
