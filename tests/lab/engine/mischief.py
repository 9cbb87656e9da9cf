"""Misbehaviour on request: a JSON file in the model folder that the container mounts, `<HF_HOME>/lab-engine.json`.

Every key may be left out. It is read at start-up and again at each request, so a test can change its mind.

- `crash_at`, `hang_at`, `oom_at`, `kill_at`: a stage (init, load, pools, graphs, http, warmup, ready); `kill_at` is the
  host's out-of-memory killer, `oom_at` the GPU's
- `memory_imbalance`: free memory differs over the ranks
- `capped`: the state cache caps the requests, {"requests": 60, "slots": 303, "per_request": 5}
- `model_id`, `max_model_len`: /v1/models lies
- `empty_reasoning`, `empty_content`, `wrong_answer`: what chat answers
- `unhealthy`, `stalled`: /health fails; requests never finish
- `answer_seconds`: how long an answer takes
- `die_after_s`: a scheduler dies so long after ready
- `seconds`: stage durations, `gpu`: the GPU's name, `node_ranks`: act on these only (the default is all)
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .model_files import hf_home

FILE = "lab-engine.json"


@dataclass(frozen=True)
class Mischief:
    """What this engine was told to do wrong."""

    told: dict[str, Any] = field(default_factory=dict)

    def at(self, kind: str, stage: str) -> bool:
        """Whether `crash_at`, `hang_at`, `oom_at` or `kill_at` names this stage."""
        return self.told.get(kind) == stage

    def __getitem__(self, key: str) -> Any:
        return self.told.get(key)


def read(node_rank: int) -> Mischief:
    """The file's content, or nothing when it is absent, half written or meant for other nodes."""
    path: Path = hf_home() / FILE
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Mischief()
    if node_rank not in told.get("node_ranks", [node_rank]):
        return Mischief()
    return Mischief(told)
