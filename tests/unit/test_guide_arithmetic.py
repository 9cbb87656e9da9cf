"""The table of the guide about many nodes, computed again from the formula it stands under."""

from pathlib import Path

import pytest

from k3deploy.remote.fetch_bound import Link, hub_bound_s, swarm_bound_s

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "weights-to-many-nodes.md"
WEIGHTS_BYTES = 1_560_936_091_448
# Payload of a link of one Gbit/s: 1448 of 1538 bytes on the wire of each Ethernet frame with IPv4 and TCP timestamps.
PAYLOAD_BPS = 1e9 / 8 * 1448 / 1538


def _rows() -> list[list[str]]:
    lines = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    return [row for row in rows if row[0].isdecimal()]


def _minutes(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 9.95 else f"{minutes:.0f} min"


def test_there_are_rows() -> None:
    assert len(_rows()) == 7


@pytest.mark.parametrize("row", _rows(), ids=" ".join)
def test_row(row: list[str]) -> None:
    nodes, hub_bps, disk_bps = int(row[0]), float(row[1]) * 1e9, float(row[3]) * 1e9
    lan_bps = float(row[2].split()[0]) * PAYLOAD_BPS
    limits = {
        "Hub": WEIGHTS_BYTES / (nodes * hub_bps),
        "private link": WEIGHTS_BYTES * (nodes - 1) / (nodes * lan_bps),
        "disk": WEIGHTS_BYTES / disk_bps,
    }
    swarm_s = max(limits.values())
    assert row[4] == _minutes(WEIGHTS_BYTES / hub_bps)
    assert row[5] == _minutes(swarm_s)
    assert row[6] == max(limits, key=limits.__getitem__)
    links = [Link(WEIGHTS_BYTES, hub_bps, lan_bps, disk_bps)] * nodes
    assert hub_bound_s(links) == pytest.approx(WEIGHTS_BYTES / hub_bps)
    assert swarm_bound_s(WEIGHTS_BYTES, links) == pytest.approx(swarm_s)
