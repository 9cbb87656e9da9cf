"""The roads by which files come to this node, and the processes at work on each."""

import os
from typing import Any

from k3deploy.remote import protocol
from k3deploy.remote.fetch_process import FetchProcess, InHand, Road
from k3deploy.remote.fetch_queue import Item
from k3deploy.remote.fetch_worker import ENTRY as CLIENT
from k3deploy.remote.hub_cache import Repository
from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.loader import part, script

_SMALL_THREADS = 4
_SMALL_IN_HAND = 16
# Passed on where the node has them: how to get out of this network.
_PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Roads:
    """`args` are those of `fetch.main`."""

    def __init__(self, args: dict[str, Any], repository: Repository) -> None:
        self.processes: list[FetchProcess] = []
        self._repository = repository
        self._scratch = args["scratch"]
        self._in_flight = args["in_flight"]
        self._settings = {
            "hf_home": args["hf_home"],
            "repo": args["manifest"]["repo"],
            "commit": args["manifest"]["commit"],
        }
        self._client = {"client": args["client"], "token": args["secrets"].get("hf_token")}
        self._environment = args["environment"]
        self._hf_home = args["hf_home"]
        self._write_script(CLIENT)

    def origin(self, item: Item) -> Road:
        """Through the Hub's client: one process for all small files, the others one large file each."""
        is_small = item.is_small
        threads = _SMALL_THREADS if is_small else 1
        return Road(
            group="small" if is_small else "large",
            words="the Hub's client",
            entry=CLIENT,
            in_hand=_SMALL_IN_HAND if is_small else 1,
            most=1 if is_small else self._in_flight,
            settings={**self._settings, **self._client, "threads": threads},
            environment=_client_environment(self._hf_home, self._environment, has_xet=item.has_xet),
        )

    def with_room(self, road: Road) -> FetchProcess | None:
        """A process that can take one more file; a new one where the number allows it."""
        same = [process for process in self.processes if process.road.group == road.group]
        for process in same:
            if process.road == road and process.has_room:
                return process
        if len(same) >= road.most:
            idle = [process for process in same if process.road != road and process.is_idle]
            if not idle:
                return None
            self.end(idle[0])  # it goes the other way to the Hub, which is settled when it starts
        process = FetchProcess(road, self._script(road.entry), self._repository)
        self.processes.append(process)
        return process

    def free_receiver(self) -> FetchProcess | None:
        """A process that can take one more file from a peer, or none."""
        return None

    def end(self, process: FetchProcess) -> list[InHand]:
        """Kill a process; returns what it had in hand."""
        self.processes.remove(process)
        return process.kill()

    def end_all(self) -> None:
        for process in list(self.processes):
            self.end(process)

    def _script(self, entry: str) -> str:
        return os.path.join(self._scratch, f"{entry}.py")

    def _write_script(self, entry: str) -> None:
        write_atomically(self._script(entry), script(part(protocol.packed_modules, entry), entry, {}))


def _plain_environment() -> dict[str, str]:
    passed_on = {name: os.environ[name] for word in _PASSED_ON for name in (word, word.lower()) if name in os.environ}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", "/"),
        "LC_ALL": "C",
        **passed_on,
    }


def _client_environment(hf_home: str, environment: dict[str, str], *, has_xet: bool) -> dict[str, str]:
    """The client's switches (huggingface_hub 2.4, hf-xet 1.8). HF_HUB_ENABLE_HF_TRANSFER has no effect since 1.0."""
    return {
        **_plain_environment(),
        "HF_HOME": hf_home,
        # Else blobs are links into a store named by another hash, and a container that mounts one repository sees none.
        "HF_HUB_DISABLE_SHARED_BLOBS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_ETAG_TIMEOUT": "30",
        "HF_HUB_DOWNLOAD_TIMEOUT": "30",
        "HF_XET_HIGH_PERFORMANCE": "1",
        "HF_XET_CHUNK_CACHE_SIZE_BYTES": "0",  # the chunk cache would hold a second copy of what is written
        **({} if has_xet else {"HF_HUB_DISABLE_XET": "1"}),
        **environment,
    }
