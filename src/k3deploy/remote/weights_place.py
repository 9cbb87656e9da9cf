"""Where a repository's files are, as the arguments of a program name it: in a cache, or plain."""

from typing import Any

from k3deploy.remote.hub_cache import Repository
from k3deploy.remote.plain_folder import PlainFolder


def place(args: dict[str, Any]) -> Repository:
    """`args`: manifest, and hf_home, folder (of the repository, in any cache) or plain (a folder of plain files)."""
    manifest = args["manifest"]
    if "plain" in args:
        return PlainFolder(args["plain"], manifest["commit"])
    if "folder" in args:
        return Repository.at(args["folder"], manifest["commit"])
    return Repository(args["hf_home"], manifest["repo"], manifest["commit"])
