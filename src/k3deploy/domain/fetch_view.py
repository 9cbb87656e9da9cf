"""The weights on their way, as lines of text: how fast, how far, from where, how long yet, against which bound.

Pure: units of a RunState in, lines out. A screen gets all of it at once (`block`), a log a line now and then.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from k3deploy.domain.run_state import Unit
from k3deploy.domain.transfer import DOES, Total, Transfer
from k3deploy.domain.units import countdown_text, part_text, rate_text

ALL: Final = "all nodes"
_NAMES: Final = 10  # columns of a target, as in every other line
_PHASES: Final = 15
_PERCENT: Final = 7  # "100 %" and the space before what follows
_SHORTEST_BAR: Final = 4
_LONGEST_BAR: Final = 20


def node_line(transfer: Transfer) -> str:
    """For a log: `fetching weights: 43 %, 12.3 GB/s, 41/96 shards, hub 24 % peers 76 %, ETA 4:10`."""
    words = (f"{transfer.percent} %", *_figures(transfer))
    return f"{transfer.unit.message}: " + ", ".join(word for word in words if word)


def total_line(total: Total) -> str:
    """For a log; "" where the line of the only node says as much."""
    return "".join(_total_parts(total))


def block(units: Iterable[Unit], width: int) -> list[str]:
    """For a screen `width` columns wide: a total for each phase, then a line for each unit at work."""
    known = list(units)
    totals = [total for phase in DOES if (total := Total.of(known, phase)) is not None]
    lines = [line for total in totals for line in _total_lines(total, width)]
    return lines + _node_lines([transfer for total in totals for transfer in total.running], width)


def _figures(transfer: Transfer) -> tuple[str, str, str, str]:
    """Rate, shards, source, time to go; "" for what is not known (yet)."""
    done, total = transfer.number("shards_done"), transfer.number("shards_total")
    return (
        "" if transfer.rate_bps is None else rate_text(transfer.rate_bps),
        "" if done is None or total is None else f"{done:.0f}/{total:.0f} shards",
        _source(transfer),
        "" if transfer.eta_s is None else f"ETA {countdown_text(transfer.eta_s)}",
    )


def _source(transfer: Transfer) -> str:
    hub_bytes, peer_bytes = transfer.number("hub_bytes") or 0.0, transfer.number("peer_bytes") or 0.0
    if hub_bytes + peer_bytes == 0:
        return ""
    peers = round(100 * peer_bytes / (hub_bytes + peer_bytes))
    return f"hub {100 - peers} %" + (f" peers {peers} %" if peer_bytes else "")


def _total_parts(total: Total) -> tuple[str, ...]:
    """In pieces that stay together on a narrow screen, each with the sign that ends it."""
    if len(total.transfers) == 1 and total.bound_s is None:
        return ()
    parts = [*_total_rates(total), part_text(total.done_bytes, total.total_bytes)]
    if total.eta_s is not None:
        parts.append(f"ETA {countdown_text(total.eta_s)}")
    together = [f"{part}, " for part in parts[:-1]]
    against = _against(total)
    return (*together, f"{parts[-1]}; ", against) if against else (*together, parts[-1])


def _total_rates(total: Total) -> list[str]:
    hub_bps, peer_bps = total.rate_bps("hub_bps"), total.rate_bps("peer_bps")
    if hub_bps is None:
        counted_bps = total.counted_bps
        does = DOES[total.transfers[0].unit.phase]
        return [] if counted_bps is None else [f"{rate_text(counted_bps)} {does}"]
    peers = [f"{rate_text(peer_bps or 0.0)} from peers"] if total.has_peers else []
    return [f"{rate_text(hub_bps)} from the Hub", *peers]


def _against(total: Total) -> str:
    if total.bound_s is None:
        return ""
    alone_s, times = total.worst("hub_bound_s"), total.times_bound
    alone = "" if alone_s is None else f" (each by itself {countdown_text(alone_s)})"
    at_this_rate = "" if times is None else f", at this rate {times:.2f}x"
    return f"bound {countdown_text(total.bound_s)}{alone}{at_this_rate}"


def _total_lines(total: Total, width: int) -> list[str]:
    """The phase is named where that leaves all on one line."""
    parts = _total_parts(total)
    if not parts:
        return []
    lines = [f"  {ALL:<{_NAMES}} {total.transfers[0].unit.phase:<{_PHASES}} "]
    if len(lines[0] + "".join(parts)) > width:
        lines = [f"  {ALL:<{_NAMES}} "]
    indent = " " * (_NAMES + 3)
    for at, part in enumerate(parts):
        if at > 0 and len((lines[-1] + part).rstrip()) > width:
            lines.append(indent)
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _node_lines(transfers: Sequence[Transfer], width: int) -> list[str]:
    """In columns. A narrow screen shortens the bar, then does without the phase's name, then without the bar."""
    tails = _columns([_cells(transfer) for transfer in transfers])
    names = max([_NAMES, *(len(transfer.unit.target) for transfer in transfers)])
    room = width - names - 4 - _PERCENT - max(map(len, tails), default=0)
    has_phase = room - _PHASES - 1 >= _LONGEST_BAR // 2
    bar = min(_LONGEST_BAR, room - _PHASES - 1 if has_phase else room)
    lines = []
    for transfer, tail in zip(transfers, tails, strict=True):
        phase = f"{transfer.unit.phase:<{_PHASES}} " if has_phase else ""
        drawn = f"{'#' * round(bar * transfer.share):<{bar}} " if bar >= _SHORTEST_BAR else ""
        lines.append(f"  {transfer.unit.target:<{names}} {phase}{drawn}{transfer.percent:3} %  {tail}".rstrip())
    return lines


def _cells(transfer: Transfer) -> tuple[str, str, str, str]:
    """The figures; where nothing is fetched, the screen says what is done instead of where bytes come from."""
    rate, shards, source, eta = _figures(transfer)
    is_fetch = transfer.number("hub_bps") is not None
    return rate, shards, source if is_fetch else DOES[transfer.unit.phase], eta


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells under each other, two spaces apart; a column that nobody fills takes no room."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{wide}}" for cell, wide in zip(row, widths, strict=True) if wide).rstrip() for row in rows
    ]
