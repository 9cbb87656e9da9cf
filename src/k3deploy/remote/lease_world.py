"""What the tracker knows of the nodes: only what they tell, so a new tracker knows as much a moment later. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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
    since: float
    moved_at: float
    landed_bytes: int = 0

    @property
    def left_bytes(self) -> int:
        return max(0, self.size_bytes - self.landed_bytes)

    def stands_still(self, now: float, seconds: float) -> bool:
        return self.left_bytes > 0 and now - self.moved_at >= seconds


@dataclass
class Node:
    """One node, as it or its share spoke last. `report` is None while only its share did; `lacked_bytes`: at first."""

    heard_at: float
    held: frozenset[int] = frozenset()
    leases: dict[int, Lease] = field(default_factory=dict)
    report: Report | None = None
    hub_bps: float | None = None
    lacked_bytes: int = 0
    _rests_until: dict[int, float] = field(default_factory=dict)
    _starved_since: float | None = None

    def hear(self, held: Iterable[int], landed: Mapping[int, int], sizes: Mapping[int, int], now: float) -> None:
        """Leases that are not told of are gone: the node never got the answer, or gave them up."""
        self.heard_at = now
        self.held = frozenset(held)
        before, self.leases = self.leases, {}
        for index, landed_bytes in landed.items():
            lease = before.get(index) or Lease(sizes[index], now, now)
            if landed_bytes != lease.landed_bytes:
                lease.landed_bytes, lease.moved_at = landed_bytes, now
            self.leases[index] = lease

    def take(self, report: Report, now: float, *, can_pull: bool) -> None:
        """`can_pull`: others hold what it lacks."""
        self.report = report
        self.hub_bps = report.hub_bps or self.hub_bps
        for index in report.failed:
            self._rests_until[index] = now + _REST_S
        if report.lan_bps is not None:
            self._starved_since = None
        elif can_pull and self._starved_since is None:
            self._starved_since = now

    @property
    def backlog_bytes(self) -> int:
        """What it has still to get from the origin."""
        return sum(lease.left_bytes for lease in self.leases.values())

    def is_resting(self, index: int, now: float) -> bool:
        """It gave this file back a moment ago."""
        return now < self._rests_until.get(index, now)

    def is_fetching(self, now: float) -> bool:
        """It takes files from the origin, or would take one."""
        has_room = self.report is not None and self.report.room > 0
        return has_room or any(
            lease.left_bytes > 0 and not self._is_quiet(lease, now) for lease in self.leases.values()
        )

    @property
    def transfers(self) -> int:
        """Leases of which bytes are still to come."""
        return sum(1 for lease in self.leases.values() if lease.left_bytes > 0)

    def is_spread(self, at_once: int) -> bool:
        """Whether another of `at_once` leases may begin: files that begin together land together, and in the end the
        peers would wait for all of them instead of for one.
        """
        return all(lease.landed_bytes * at_once >= lease.size_bytes for lease in self.leases.values())

    def lease_left_s(self, lease: Lease, now: float) -> float:
        """When a lease will be through: all leases of a node have an equal part of its link."""
        if self._is_quiet(lease, now):
            return float("inf")
        if self.hub_bps is None:
            return 0.0  # too early to tell
        return sum(min(each.left_bytes, lease.left_bytes) for each in self.leases.values()) / self.hub_bps

    def lan_left_s(self, now: float) -> float:
        """When it would have from its peers all that it lacks: 0 as long as nothing is known against it."""
        if self.report is None:
            return 0.0
        if self.report.lan_bps is not None:
            return self.report.lan_backlog_bytes / self.report.lan_bps
        is_starved = self._starved_since is not None and now - self._starved_since > _PATIENCE_S
        return float("inf") if is_starved else 0.0

    def _is_quiet(self, lease: Lease, now: float) -> bool:
        return now - self.heard_at >= _QUIET_S or lease.stands_still(now, _QUIET_S)
