"""What the tracker knows of the nodes: only what they tell, so a new tracker knows as much a moment later. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from k3deploy.remote.lease_rate import BLOCK_BYTES, LinkRate
from k3deploy.remote.share_report import Report

# A file that a node gave back is offered to it again after this time, to others at once.
_REST_S = 10.0
# Peers hold what a node lacks and nothing has come from them for so long: there is no way between them.
_PATIENCE_S = 5.0
# A node that has said nothing, or landed nothing, for so long may be gone: nobody who is idle has to wait for it.
_QUIET_S = 5.0


@dataclass
class Lease:
    """A file on its way from the origin to one node; `moved_at`: when its bytes last grew.

    One that has landed stays a lease until it is hashed, which takes a big one longer than any pause on the way.
    """

    size_bytes: int
    moved_at: float
    landed_bytes: int = 0

    @property
    def has_landed(self) -> bool:
        return self.landed_bytes >= self.size_bytes

    def stands_still(self, now: float, seconds: float) -> bool:
        return not self.has_landed and now - self.moved_at >= seconds


@dataclass
class Node:
    """One node, as it or its share spoke last. `report` is None while only its share did; `lacked_bytes`: at first."""

    heard_at: float
    held: frozenset[int] = frozenset()
    leases: dict[int, Lease] = field(default_factory=dict)
    report: Report | None = None
    lacked_bytes: int = 0
    _rate: LinkRate = field(default_factory=LinkRate)
    _rests_until: dict[int, float] = field(default_factory=dict)
    _starved_since: float | None = None

    @property
    def hub_bytes(self) -> int:
        """What came from the origin in all, fetches that began anew included."""
        return self._rate.total_bytes

    @property
    def hub_bps(self) -> float | None:
        """Its link to the origin, as seen from here; as the node says it until enough was seen."""
        return self._rate.bps or (self.report.hub_bps if self.report else None)

    def hear(self, held: Iterable[int], landed: Mapping[int, int], sizes: Mapping[int, int], now: float) -> None:
        """Leases that are not told of are gone: the node never got the answer, or gave them up."""
        self.heard_at = now
        self.held = frozenset(held)
        before, self.leases = self.leases, {}
        for index, landed_bytes in landed.items():
            lease = before.get(index) or Lease(sizes[index], now)
            if landed_bytes != lease.landed_bytes:
                lease.landed_bytes, lease.moved_at = landed_bytes, now
            self.leases[index] = lease

    def take(self, report: Report, now: float) -> None:
        """Before `hear`: the leases that it had until now made use of its link."""
        self._rate.sample(now, report.hub_bytes, was_busy=self.transfers > 0)
        self.report = report
        for index in report.failed:
            self._rests_until[index] = now + _REST_S

    def watch_peers(self, now: float, *, can_pull: bool) -> None:
        """`can_pull`: others hold what it lacks."""
        if self.report is None or self.report.lan_bps is not None:
            self._starved_since = None
        elif can_pull and self._starved_since is None:
            self._starved_since = now

    @property
    def transfers(self) -> int:
        """Leases of which bytes are still to come."""
        return sum(1 for lease in self.leases.values() if not lease.has_landed)

    def backlog_bytes(self, now: float) -> float:
        """What it has still to get from the origin."""
        return sum(self._left_bytes(lease, now) for lease in self.leases.values())

    def is_resting(self, index: int, now: float) -> bool:
        """It gave this file back a moment ago."""
        return now < self._rests_until.get(index, now)

    def is_fetching(self, now: float) -> bool:
        """It takes files from the origin, or would take one."""
        has_room = self.report is not None and self.report.room > 0
        return has_room or any(
            not lease.has_landed and not self._is_quiet(lease, now) for lease in self.leases.values()
        )

    def is_spread(self, at_once: int, now: float) -> bool:
        """Whether another of `at_once` leases may begin: files that begin together land together, and in the end the
        peers would wait for all of them instead of for one.
        """
        most_left = 1 - 1 / at_once
        return all(self._left_bytes(lease, now) <= most_left * lease.size_bytes for lease in self.leases.values())

    def is_stalled(self, lease: Lease, now: float, stall_s: float) -> bool:
        """Whether so little comes of it that somebody else should have it as well."""
        return lease.stands_still(now, max(stall_s, 2 * self._pause_s(lease)))

    def lease_left_s(self, lease: Lease, now: float) -> float:
        """When a lease will be through: all leases of a node have an equal part of its link."""
        if self._is_quiet(lease, now):
            return float("inf")
        if self.hub_bps is None:
            return 0.0  # too early to tell
        left_bytes = self._left_bytes(lease, now)
        return sum(min(self._left_bytes(each, now), left_bytes) for each in self.leases.values()) / self.hub_bps

    def lan_left_s(self, now: float, more_bytes: int = 0) -> float:
        """When it would have from its peers all that it lacks, and so much more: 0 while nothing speaks against it."""
        if self.report is None:
            return 0.0
        if self.report.lan_bps is not None:
            return (self.report.lan_backlog_bytes + more_bytes) / self.report.lan_bps
        is_starved = self._starved_since is not None and now - self._starved_since > _PATIENCE_S
        return float("inf") if is_starved else 0.0

    def _left_bytes(self, lease: Lease, now: float) -> float:
        """Without what must have come since anything was seen of it."""
        left_bytes = max(0, lease.size_bytes - lease.landed_bytes)
        if left_bytes == 0 or self.hub_bps is None:
            return left_bytes
        unseen_bytes = self.hub_bps / self.transfers * (now - lease.moved_at)
        return left_bytes - min(left_bytes, unseen_bytes, BLOCK_BYTES)

    def _is_quiet(self, lease: Lease, now: float) -> bool:
        return now - self.heard_at >= _QUIET_S or lease.stands_still(now, max(_QUIET_S, 2 * self._pause_s(lease)))

    def _pause_s(self, lease: Lease) -> float:
        """How long nothing can be seen of a transfer that goes on."""
        block_bytes = min(BLOCK_BYTES, lease.size_bytes)
        return self.transfers * block_bytes / self.hub_bps if self.hub_bps else 0.0
