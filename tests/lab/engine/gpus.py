"""The node's GPUs as the container runtime hands them over: the file that the node's nvidia-smi reads."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HANDED_OVER = Path("/run/lab-engine/gpus.json")


@dataclass(frozen=True)
class Gpus:
    """What a CUDA program would see: how many still answer, and what others hold on them."""

    name: str
    count: int
    total_mib: int
    occupied_mib: int


def handed_over() -> Gpus | None:
    """The GPUs of this container, None when nothing was handed over."""
    path = Path(os.environ.get("LAB_ENGINE_GPUS") or _HANDED_OVER)
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    faults = found.get("faults") or {}
    held = [each["mib"] if isinstance(each, dict) else each for each in (faults.get("occupied") or {}).values()]
    return Gpus(
        name=found["name"],
        count=found["count"] - len(faults.get("lost") or []),
        total_mib=found["memory_total_mib"],
        occupied_mib=max(held, default=0),
    )
