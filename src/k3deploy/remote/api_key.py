"""The key of a public API, in a file on the head node that only root reads: never in argv, never in an environment.

The file is what SGLang's `--config FILE` takes (0.5.17 to 0.5.23): YAML with the one option `api-key`.
"""

import os
from typing import Any

from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.own_folder import login_user, make
from k3deploy.remote.protocol import Refusal, Say

_OPTION = "api-key:"


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: path; secrets.file (the text for it, used when there is none yet); show: also return the key.

    A key that is there is kept, so that its users stay let in. Returns {"path", "is_new"} and, if asked for, "key".
    """
    path = args["path"]
    text = args.get("secrets", {}).get("file")
    is_new = text is not None and not os.path.exists(path)
    if is_new:
        make(os.path.dirname(path), login_user(None))
        write_atomically(path, text, mode=0o600)
    return {"path": path, "is_new": is_new, **({"key": read_key(path)} if args.get("show") else {})}


def read_key(path: str) -> str:
    """Raises Refusal when the file is not there or holds no key."""
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
            return line[len(_OPTION) :].strip().strip('"')
    raise Refusal(f"{path} holds no API key", fix=f"remove {path} and run `k3deploy up` again", path=path)
