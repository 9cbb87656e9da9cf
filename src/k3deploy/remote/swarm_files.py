"""Where each large file of a manifest is on its way to this node: one place for each. No I/O.

Files are named by their index in the manifest, as between nodes. One that is wanted is granted (ours to fetch from the
origin), pulled (on its way from a peer), unproved (here, and nobody has hashed it), or awaited: somebody else must have
it first. Small files without a sha256 are not spoken of: every node gets them from the origin itself.
"""

from collections.abc import Iterable, Mapping

from k3deploy.remote.fetch_policy import Moving
from k3deploy.remote.hub_cache import Wanted


class SwarmFiles:
    """`lacking`: paths of what has to come, or is here and `unproved`. The rest of `files` is here and proved.

    `pulled`: each with the peers that were asked, in their order; `proving`: unproved ones in hand.
    """

    def __init__(self, files: list[Wanted], lacking: set[str], unproved: set[str]) -> None:
        self.by_index = {index: file for index, file in enumerate(files) if file.is_sha256}
        self.indexes = {file.path: index for index, file in self.by_index.items()}
        self.wanted = {index for index, file in self.by_index.items() if file.path in lacking}
        self.unproved = {index for index, file in self.by_index.items() if file.path in unproved}
        self.held = set(self.by_index) - self.wanted
        self.granted: set[int] = set()
        self.pulled: dict[int, list[str]] = {}
        self.proving: set[int] = set()

    @property
    def awaited(self) -> set[int]:
        return self.wanted - self.granted - self.pulled.keys() - self.unproved

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way here: somebody else has to move first."""
        return not self.granted and not self.pulled and not self.proving

    def proved(self, index: int) -> None:
        """It is here, and nobody has to bring it any more."""
        self.held.add(index)
        self.pulled.pop(index, None)
        for place in (self.wanted, self.granted, self.unproved, self.proving):
            place.discard(index)

    def leases(self, moving: Moving) -> dict[int, int]:
        """Bytes here of each file that nobody else has to fetch; one that only has to be proved counts as whole."""
        landed = {index: moving.from_origin.get(self.by_index[index].path, 0) for index in self.granted}
        return {**landed, **{index: self.by_index[index].size_bytes for index in self.unproved}}

    def under_way(self, moving: Moving) -> dict[int, int]:
        """Leases of which bytes are still to come, and those that are here."""
        return {index: here for index, here in self.leases(moving).items() if here < self.by_index[index].size_bytes}

    def left_bytes(self, indexes: Iterable[int], here: Mapping[str, int]) -> int:
        """What is still to come of some files. `here`: bytes of those that have begun, by path."""
        files = [self.by_index[index] for index in indexes]
        return sum(max(0, file.size_bytes - here.get(file.path, 0)) for file in files)

    def from_peer_s(self, index: int, moving: Moving) -> float:
        """When a peer would have brought this file, after all that peers are bringing. The rate must be known."""
        pulled_bytes = self.left_bytes(self.pulled, moving.from_peers)
        return (self.by_index[index].size_bytes + pulled_bytes) / moving.lan_bps

    def is_sooner_from_peer(self, index: int, moving: Moving) -> bool:
        """Whether a peer would bring the whole file before the origin is through with the rest of it."""
        if not moving.hub_bps or not moving.lan_bps:
            return True  # not known yet, and a peer is one switch away
        left_bytes = self.left_bytes([index], moving.from_origin) * max(1, len(self.under_way(moving)))
        return self.from_peer_s(index, moving) < left_bytes / moving.hub_bps
