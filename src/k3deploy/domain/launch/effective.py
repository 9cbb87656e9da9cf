"""Whether the engine runs what it was asked to: a backend it fell back to silently changes speed, not correctness."""

from collections.abc import Mapping
from typing import Final

from k3deploy.domain.launch.base import Launch
from k3deploy.domain.launch.stages import Figure

# Flag -> (topic, figure) of the log that tells what is used. SGLang 0.5.17 to 0.5.23.
_TOLD_BY: Final[Mapping[str, tuple[str, str]]] = {
    "--moe-runner-backend": ("moe", "moe_runner_backend"),
    "--decode-attention-backend": ("attention", "decode_backend"),
    "--prefill-attention-backend": ("attention", "prefill_backend"),
    "--max-running-requests": ("scheduler", "max_running_requests"),
    "--chunked-prefill-size": ("scheduler", "chunked_prefill_size"),
}


def differences(launch: Launch, figures: Mapping[str, Mapping[str, Figure]]) -> tuple[str, ...]:
    """Where the log says otherwise than the command line; what the log does not mention is not judged."""
    found = []
    for flag in launch.flags:
        topic, name = _TOLD_BY.get(flag.name, ("", ""))
        used = figures.get(topic, {}).get(name)
        if used is not None and flag.value not in (None, "auto", str(used)):
            found.append(f"{flag.name} {flag.value} was asked for, the engine uses {used}")
    return tuple(found)
