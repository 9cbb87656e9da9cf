"""The roads by which files come to this node, and the processes at work on each."""

import json
import os
from typing import Any

from k3deploy.remote import protocol
from k3deploy.remote.fetch_policy import Pull
from k3deploy.remote.fetch_process import FetchProcess, InHand, Road
from k3deploy.remote.fetch_queue import Item
from k3deploy.remote.fetch_worker import ENTRY as CLIENT
from k3deploy.remote.hub_cache import Repository, Wanted
from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.link_speed import stream_count
from k3deploy.remote.loader import part, script
from k3deploy.remote.receive_worker import ENTRY as RECEIVER
from k3deploy.remote.share_protocol import Me

_SMALL_THREADS = 4
_SMALL_IN_HAND = 16
# One connection to an object store brings about 100 MB/s: a node's link takes many.
_URL_STREAMS = 8
# Passed on where the node has them: how to get out of this network.
_PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Roads:
    """`args` are those of `fetch.main`. `me`: how this node shows itself to peers, None where it has none."""

    def __init__(self, args: dict[str, Any], repository: Repository, me: Me | None) -> None:
        self.processes: list[FetchProcess] = []
        self._repository = repository
        self._args = args
        manifest = args["manifest"]
        self._common = {"hf_home": args["hf_home"], "repo": manifest["repo"], "commit": manifest["commit"]}
        self._urls: dict[str, str] | None = None
        if args.get("origin") == "urls":
            self._urls = json.loads(args["secrets"]["urls"])
        self._peers = None if me is None else self._peer_road(me)
        self._scripts: dict[str, str] = {}

    def start(self, file: Wanted) -> None:
        """Begin to start what will fetch this one from the origin: that takes a moment."""
        self._with_room(self._origin_road(Item(file)))

    def give(self, item: Item) -> bool:
        """Let a file come from the origin; False when there is no room for it now."""
        process = self._with_room(self._origin_road(item))
        if process is None:
            return False
        if self._urls is None:
            process.give(item.file)
        else:
            source = {"name": "origin", "url": self._urls[item.file.path]}
            process.give(item.file, sources=[source], is_fresh=item.wrong > 0)
        return True

    @property
    def can_receive(self) -> bool:
        """Whether one more file could come from a peer now."""
        busy = sum(1 for process in self.processes if process.road.is_peer and not process.has_room)
        return self._peers is not None and busy < self._peers.most

    def receive(self, pull: Pull) -> None:
        """Let a file come from a peer. Only after `can_receive`."""
        assert self._peers is not None
        process = self._with_room(self._peers)
        assert process is not None
        process.give(pull.file, sources=pull.sources, is_fresh=pull.is_fresh)

    def end(self, process: FetchProcess) -> list[InHand]:
        """Kill a process; returns what it had in hand."""
        self.processes.remove(process)
        return process.kill()

    def end_all(self) -> None:
        for process in list(self.processes):
            self.end(process)

    def _origin_road(self, item: Item) -> Road:
        return self._client_road(item) if self._urls is None else self._url_road()

    def _client_road(self, item: Item) -> Road:
        """Through the Hub's client: one process for all small files, the others one large file each."""
        is_small = item.is_small
        return Road(
            group="small" if is_small else "large",
            words="the Hub's client",
            entry=CLIENT,
            in_hand=_SMALL_IN_HAND if is_small else 1,
            most=1 if is_small else self._args["in_flight"],
            settings={
                **self._common,
                "client": self._args["client"],
                "token": self._args["secrets"].get("hf_token"),
                "threads": _SMALL_THREADS if is_small else 1,
            },
            environment=_client_environment(self._args, has_xet=item.has_xet),
        )

    def _url_road(self) -> Road:
        return Road(
            group="urls",
            words="a receiver",
            entry=RECEIVER,
            in_hand=1,
            most=max(_URL_STREAMS, self._args["in_flight"]),
            settings=self._common,
            environment=_plain_environment(),
            is_resumable=True,
        )

    def _peer_road(self, me: Me) -> Road:
        return Road(
            group="peers",
            words="a receiver",
            entry=RECEIVER,
            in_hand=1,
            most=stream_count(me.address),
            settings={**self._common, "address": me.address, "swarm_token": me.token},
            environment=_plain_environment(),
            is_peer=True,
            is_resumable=True,
        )

    def _with_room(self, road: Road) -> FetchProcess | None:
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
        return self._begin(road)

    def _begin(self, road: Road) -> FetchProcess:
        process = FetchProcess(road, self._script(road.entry), self._repository)
        self.processes.append(process)
        return process

    def _script(self, entry: str) -> str:
        if entry not in self._scripts:
            path = os.path.join(self._args["scratch"], f"{entry}.py")
            write_atomically(path, script(part(protocol.packed_modules, entry), entry, {}))
            self._scripts[entry] = path
        return self._scripts[entry]


def _plain_environment() -> dict[str, str]:
    passed_on = {name: os.environ[name] for word in _PASSED_ON for name in (word, word.lower()) if name in os.environ}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", "/"),
        "LC_ALL": "C",
        **passed_on,
    }


def _client_environment(args: dict[str, Any], *, has_xet: bool) -> dict[str, str]:
    """The client's switches (huggingface_hub 2.4, hf-xet 1.8). HF_HUB_ENABLE_HF_TRANSFER has no effect since 1.0."""
    return {
        **_plain_environment(),
        "HF_HOME": args["hf_home"],
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
        **args["environment"],
    }
