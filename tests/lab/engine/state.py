"""What this engine is doing now, in a file of its own root, so that the node's nvidia-smi can tell the truth."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "API_KEY")


class StateFile:
    """`/run/lab-engine/state.json`: stage, argv, environment, and GPU memory by worker process."""

    def __init__(self, **facts: Any) -> None:
        folder = Path(os.environ.get("LAB_ENGINE_STATE_DIR", "/run/lab-engine"))
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "state.json"
        self._lock = threading.Lock()
        self._state: dict[str, Any] = {
            "schema": 1,
            "pid": os.getpid(),
            "started": time.time(),
            "stage": "start",
            "is_ready": False,
            "env": {name: _shown(name, value) for name, value in sorted(os.environ.items())},
            "gpus": [],
            **facts,
        }
        self.update()

    def update(self, **changes: Any) -> None:
        """Change some facts and write the whole file anew, atomically."""
        with self._lock:
            self._state |= changes
            draft = self._path.with_suffix(".tmp")
            draft.write_text(json.dumps(self._state, indent=1), encoding="utf-8")
            draft.replace(self._path)

    def use_memory(self, used_mib: int, head_extra_mib: int = 0) -> None:
        """The same memory on each GPU, and a little more on the first GPU of the node that serves HTTP."""
        gpus = [dict(gpu) for gpu in self._state["gpus"]]
        for gpu in gpus:
            is_head = gpu["index"] == 0 and self._state.get("node_rank") == 0
            gpu["used_mib"] = used_mib + (head_extra_mib if is_head else 0)
        self.update(gpus=gpus)


def _shown(name: str, value: str) -> str:
    return "***" if any(word in name.upper() for word in _SECRET_WORDS) else value
