"""Where missing files may come from: the questions that a fetch asks, and the answers of a node that is on its own."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.share_protocol import Me


class Pull(NamedTuple):
    """One file for a receiver. `sources`: holders to try in this order; None: the file is here, prove it.

    `is_fresh`: begin at its first byte, whatever lies there.
    """

    file: Wanted
    sources: list[dict[str, Any]] | None
    is_fresh: bool


class Moving(NamedTuple):
    """How far the fetch is: bytes here of each file on its way, all that the origin gave, how fast the links are.

    `hub_large_bytes`: of that, what belongs to files which are large enough to tell how fast a link is.
    `is_origin_ready`: a process has started that can fetch from the origin.
    """

    from_origin: dict[str, int]
    from_peers: dict[str, int]
    hub_bytes: int
    hub_large_bytes: int
    hub_bps: float
    lan_bps: float
    is_origin_ready: bool


class Policy(Protocol):
    """Offers files to the queue of those that come from the origin, and says which ones to take from peers.

    `me`: how this node shows itself to peers, None where it has none.
    """

    me: Me | None

    def readers(self) -> Sequence[Any]:
        """What wakes the fetch besides its processes, for `select`."""

    def turn(self, moving: Moving, now: float) -> list[str]:
        """Once a turn. Returns files whose transfer from the origin is to stop. Raises Refusal when nothing is left."""

    def next_pull(self, now: float) -> Pull | None: ...

    def pull_ended(self, path: str, word: dict[str, Any], now: float) -> None:
        """A receiver has let go of a file without having it whole; its last word on it."""

    def give_up(self, path: str, refusal: Refusal) -> None:
        """The origin does not give this file to this node. Raises the refusal where nobody else could."""

    def proved(self, file: Wanted) -> None:
        """It is here, hashed, right and stamped."""

    def told(self) -> dict[str, Any]:
        """What is known of the whole cluster, for people: `bound_s`, and `hub_bound_s` of every node by itself."""

    def close(self, *, is_complete: bool) -> None: ...


class Alone:
    """Every missing file comes from the origin: the Hub, or a mirror of it."""

    me: Me | None = None

    def __init__(self, queue: FetchQueue, missing: list[Wanted]) -> None:
        queue.offer(missing)

    def readers(self) -> Sequence[Any]:
        return ()

    def turn(self, moving: Moving, now: float) -> list[str]:
        return []

    def next_pull(self, now: float) -> Pull | None:
        return None

    def pull_ended(self, path: str, word: dict[str, Any], now: float) -> None:
        raise AssertionError(f"{path} came from a peer to a node that has none")

    def give_up(self, path: str, refusal: Refusal) -> None:
        raise refusal

    def proved(self, file: Wanted) -> None:
        pass

    def told(self) -> dict[str, Any]:
        return {}

    def close(self, *, is_complete: bool) -> None:
        pass
