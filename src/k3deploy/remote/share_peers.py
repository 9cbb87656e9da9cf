"""Ask the shares of other nodes: all at the same time, and no longer than a moment."""

import http.client
import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.share_protocol import END, STATE, Me, method_of

_ANSWER_S = 1.0
_ANSWER_MOST_BYTES = 1 << 20
_AT_ONCE = 32


class State(NamedTuple):
    """What a share says of its node: the files that it gives, and those its node fetches from the origin."""

    held: list[int]
    landed: dict[int, int]


class Peers:
    """The other shares of this manifest in this run. They listen on one of `ports`."""

    def __init__(self, peers: PeerList, *, me: Me, ports: list[int], manifest: str) -> None:
        self._peers = peers
        self._ports = ports
        self._me = me
        self._manifest = manifest

    def nodes(self) -> Mapping[str, str]:
        """Addresses by name, in the run's order."""
        return self._peers.nodes()

    def states(self, names: Iterable[str]) -> dict[str, State]:
        """Of those that answer."""
        found = self._ask_all(names, STATE)
        return {name: state for name, body in found.items() if (state := _state(body)) is not None}

    def end(self, names: Iterable[str]) -> None:
        """Tell them that nobody needs them any more."""
        self._ask_all(names, END)

    def _ask_all(self, names: Iterable[str], path: str) -> dict[str, dict[str, Any]]:
        nodes = self.nodes()
        asked = [name for name in names if name in nodes]
        if not asked:
            return {}
        with ThreadPoolExecutor(min(len(asked), _AT_ONCE)) as pool:
            answers = pool.map(lambda name: self._ask(nodes[name], path), asked)
            return {name: answer for name, answer in zip(asked, answers, strict=True) if answer is not None}

    def _ask(self, address: str, path: str) -> dict[str, Any] | None:
        """The answer of the share that speaks of the same manifest; another run's may hold the first port."""
        deadline = time.monotonic() + _ANSWER_S
        for port in self._ports:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            connection = self._me.connection(address, port, left_s)
            try:
                headers = {"Authorization": self._me.authorization, "Content-Length": "0"}
                connection.request(method_of(path), path, headers=headers)
                response = connection.getresponse()
                body = json.loads(response.read(_ANSWER_MOST_BYTES))
                if response.status == 200 and body["manifest"] == self._manifest:
                    return dict(body)
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError):
                continue
            finally:
                connection.close()
        return None


def _state(body: dict[str, Any]) -> State | None:
    try:
        landed = {int(index): int(landed_bytes) for index, landed_bytes in body["leases"].items()}
        return State([int(index) for index in body["held"]], landed)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
        return None
