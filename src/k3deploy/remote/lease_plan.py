"""Who should fetch the next file from the origin: the node that finishes it first, not the one that asks first. Pure.

List scheduling by earliest finish: the files that are left, biggest first, are dealt out to the nodes in thought, each
to the node that would have it soonest after what it already does. A slow node so gets a file only while it does not
become the one that all others wait for.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Measured rates differ by a few per cent from look to look; whoever asks is not turned away for that.
_TOLERANCE = 1.05


class Fetcher(NamedTuple):
    """A node that fetches: what it still has in hand, and its rate."""

    backlog_bytes: float
    bps: float

    def finish_s(self, more_bytes: int) -> float:
        """When it would be through with that as well."""
        return (self.backlog_bytes + more_bytes) / self.bps


def horizon_s(sizes: Sequence[int], asker: Fetcher, others: Iterable[Fetcher]) -> float | None:
    """The time within which a file must end for `asker` to begin it now; None: others do all that is left sooner.

    `sizes`: of all files that nobody has or fetches.
    """
    fetchers = [asker, *others]
    # As long as even a perfect division leaves more to do than that, everybody is needed for everything.
    even_s = (sum(sizes) + sum(each.backlog_bytes for each in fetchers)) / sum(each.bps for each in fetchers)
    if asker.finish_s(max(sizes)) <= even_s:
        return even_s
    free_s = [fetcher.backlog_bytes / fetcher.bps for fetcher in fetchers]
    free_s[0] /= _TOLERANCE
    is_needed, latest_s = False, 0.0
    for size in sorted(sizes, reverse=True):
        ends_s = [free + size / fetcher.bps for free, fetcher in zip(free_s, fetchers, strict=True)]
        ends_s[0] /= _TOLERANCE
        chosen = min(range(len(ends_s)), key=ends_s.__getitem__)
        free_s[chosen] = ends_s[chosen]
        is_needed = is_needed or chosen == 0
        latest_s = max(latest_s, ends_s[chosen])
    return latest_s * _TOLERANCE if is_needed else None
