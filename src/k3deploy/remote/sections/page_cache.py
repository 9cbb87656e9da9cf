"""About how much of the weights is in this node's memory. Reads none of them."""

import os
from typing import Any

from k3deploy.remote.page_cache import cached_bytes, weight_files


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: hf_home, repositories ([[repo, commit], ...]). Files that are not there count nothing."""
    files = weight_files(args["hf_home"], args["repositories"])
    return {
        "bytes": sum(os.path.getsize(path) for path in files),
        "cached_bytes": sum(cached_bytes(path) for path in files),
    }
