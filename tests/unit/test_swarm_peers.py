"""Who the nodes of a run are to each other, on a node: written for its user alone, a token that is there is kept."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.swarm_peers import main
from tests.unit.remote_program import run

PEERS = {"run": "r1", "nodes": {"gpu-02": "10.0.0.12", "gpu-01": "10.0.0.11"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "swarm"


def tell(folder: Path, token: str | None = None, **args: Any) -> dict[str, Any]:
    secrets = {} if token is None else {"swarm_token": token}
    result = run("swarm_peers", {"folder": str(folder), **args, "secrets": secrets}).result
    assert isinstance(result, dict)
    return result


def test_looking_leaves_nothing_behind(folder: Path) -> None:
    assert tell(folder) == {"token": None}
    assert not folder.exists()


def test_peers_and_token_are_kept_for_their_user_alone(folder: Path) -> None:
    assert tell(folder, "first", peers=PEERS) == {"token": "first"}
    assert PeerList(str(folder / "peers.json")).nodes() == PEERS["nodes"]
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "peers.json": 0o600,
        "token": 0o600,
    }
    assert tell(folder) == {"token": "first"}


def test_the_order_of_the_run_is_kept(folder: Path) -> None:
    tell(folder, peers=PEERS)
    assert list(PeerList(str(folder / "peers.json")).nodes()) == ["gpu-02", "gpu-01"]


def test_the_token_by_which_nodes_share_already_is_kept_and_told(folder: Path) -> None:
    """`up` goes on from another laptop, which has made a token of its own."""
    tell(folder, "first", peers=PEERS)
    assert tell(folder, "second", peers=PEERS) == {"token": "first"}
    assert (folder / "token").read_text() == "first"


def test_a_token_file_that_is_empty_holds_none(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "token").write_text("\n")
    assert tell(folder) == {"token": None}
    assert tell(folder, "first") == {"token": "first"}


def test_peers_are_written_anew_and_the_token_stays(folder: Path) -> None:
    tell(folder, "first", peers=PEERS)
    assert tell(folder, peers={"run": "r1", "nodes": {"gpu-03": "10.0.0.13"}}) == {"token": "first"}
    assert json.loads((folder / "peers.json").read_text())["nodes"] == {"gpu-03": "10.0.0.13"}


def test_a_peer_whose_address_the_operator_does_not_know_now_stays_one(folder: Path) -> None:
    """A second `up` found gpu-01 slow to answer, while it fetches from the others and they from it."""
    tell(folder, "first", peers=PEERS)
    tell(folder, peers={"run": "r1", "nodes": {"gpu-02": "10.0.0.22", "gpu-01": None, "gpu-03": None}})
    kept = PeerList(str(folder / "peers.json")).nodes()
    assert list(kept.items()) == [("gpu-02", "10.0.0.22"), ("gpu-01", "10.0.0.11")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write for others")
def test_what_root_writes_belongs_to_the_login_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "nobody")
    main({"folder": str(folder), "peers": PEERS, "secrets": {"swarm_token": "t"}}, print)
    owners = {path.owner() for path in (folder, folder / "peers.json", folder / "token")}
    assert owners == {"nobody"}
