"""What came over one of a node's links, to the origin or to its peers: all of it, and what tells how fast it is."""

from collections.abc import Sequence

from k3deploy.remote.fetch_process import FetchProcess, tells_rate
from k3deploy.remote.hub_cache import Wanted
from k3deploy.remote.rate_meter import RateMeter, RecentRate


class FetchLink:
    """`came_bytes`: of transfers that are over. `meter` sees large files alone, `recent` everything."""

    def __init__(self) -> None:
        self.came_bytes = 0
        self.meter = RateMeter()
        self.recent = RecentRate()
        self._came_large_bytes = 0

    def came(self, file: Wanted, moved_bytes: int) -> None:
        """A transfer is over, however it ended."""
        self.came_bytes += moved_bytes
        if tells_rate(file):
            self._came_large_bytes += moved_bytes

    def sample(self, now: float, processes: Sequence[FetchProcess]) -> None:
        """Look at what is on its way."""
        self.recent.sample(now, self.came_bytes + sum(process.moved_bytes for process in processes))
        large_bytes = self._came_large_bytes + sum(process.moved_large_bytes for process in processes)
        self.meter.sample(now, large_bytes, is_busy=any(process.fills_link for process in processes))
