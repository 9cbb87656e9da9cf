"""The key of a public API: made on the head node, kept there in a file that only root reads, never in argv.

The file is YAML as SGLang's `--config FILE` takes it (0.5.17 to 0.5.23), with the one option `api-key`.
"""

import os
import secrets
from typing import Any

from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.protocol import Refusal, Say

_OPTION = "api-key: "


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: path; show (bool): also return the key. An existing key is kept. Returns {"path", "is_new", "key"?}."""
    path = args["path"]
    is_new = not os.path.exists(path)
    if is_new:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomically(path, f"{_OPTION}{secrets.token_urlsafe(32)}\n", mode=0o600)
    shown = {"key": read_key(path)} if args.get("show") else {}
    return {"path": path, "is_new": is_new, **shown}


def read_key(path: str) -> str:
    """Raises Refusal when the file holds no key."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise Refusal(
            f"the API key cannot be read from {path}",
            why=str(error.strerror),
            fix="run `k3deploy up` again: a new key is made and the engine is launched with it",
            path=path,
        ) from error
    for line in lines:
        if line.startswith(_OPTION):
            return line[len(_OPTION) :].strip()
    raise Refusal(f"{path} holds no API key", fix=f"remove {path} and run `k3deploy up` again", path=path)
