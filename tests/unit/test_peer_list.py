"""What a node knows of the others: their addresses, and how many streams fill the link to them."""

import json
from pathlib import Path

import pytest

from k3deploy.remote.link_speed import stream_count, streams
from k3deploy.remote.peer_list import PeerList


def _write(path: Path, nodes: dict[str, str]) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"run": "r1", "nodes": nodes}))
    draft.replace(path)


def test_nodes_are_known_in_the_runs_order_and_read_again_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    peers = PeerList(str(path))
    assert peers.nodes() == {}
    _write(path, {"gpu-02": "10.0.0.12", "gpu-01": "10.0.0.11"})
    assert list(peers.nodes().items()) == [("gpu-02", "10.0.0.12"), ("gpu-01", "10.0.0.11")]
    _write(path, {"gpu-01": "10.0.0.99"})
    assert peers.nodes() == {"gpu-01": "10.0.0.99"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": 3}', "{}"])
def test_a_damaged_list_changes_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "peers.json"
    _write(path, {"gpu-01": "10.0.0.11"})
    peers = PeerList(str(path))
    assert peers.nodes() == {"gpu-01": "10.0.0.11"}
    path.write_text(text)
    assert peers.nodes() == {"gpu-01": "10.0.0.11"}


@pytest.mark.parametrize(
    ("gbit_per_s", "cores", "count"),
    [
        (0, 64, 2),  # a virtual link without a speed
        (1, 64, 2),
        (10, 64, 2),
        (25, 64, 5),
        (100, 64, 16),  # 20 by the rate, more than any disk takes
        (100, 8, 8),
        (25, 1, 2),
    ],
)
def test_streams_follow_the_link_up_to_the_cores(gbit_per_s: float, cores: int, count: int) -> None:
    assert streams(gbit_per_s, cores) == count


def test_an_address_that_no_link_holds_gets_two_streams() -> None:
    assert stream_count("192.0.2.1") == 2
