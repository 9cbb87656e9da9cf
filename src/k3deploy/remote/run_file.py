"""Write or remove small JSON files in this run's folder: each one in full or not at all."""

import contextlib
import json
import os
from typing import Any

from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.own_folder import login_user, make
from k3deploy.remote.protocol import Say


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: write {path: body}, remove [paths]. Returns {"written", "removed"}: the paths concerned."""
    removed = []
    for path in args.get("remove", ()):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            removed.append(path)
    written = dict(args.get("write") or {})
    for path, body in written.items():
        make(os.path.dirname(path), login_user(None))
        write_atomically(path, json.dumps(body, sort_keys=True, indent=1) + "\n", mode=0o644)
    return {"written": sorted(written), "removed": removed}
