"""A whole rack: 18 nodes, nine replicas, each launched when its own two nodes are ready."""

from collections.abc import Iterator

import pytest

from k3deploy.domain import events as ev
from tests.lab.lab import Lab
from tests.lab.operator import Operator

pytestmark = pytest.mark.lab
REPLICAS = [f"serve-{index}" for index in range(9)]


@pytest.fixture(scope="module")
def operator() -> Iterator[Operator]:
    # Only the checkpoint is small (12 files): the hub client's CPU decides on a machine with two cores.
    lab = Lab.up("rack", profile="lab-gb300-nvl72", nodes=18, variant="small12")
    yield Operator(lab)
    lab.down()


def test_nine_replicas_on_eighteen_nodes_answer(operator: Operator) -> None:
    said = operator.k3deploy("up", "--profile", "lab-gb300-nvl72", "--output", "json")
    assert said.code == 0, said
    assert sorted(said.json["answers"]) == REPLICAS
    assert all(answer["answer"] and answer["reasoning"] for answer in said.json["answers"].values())
    pulled = {
        event.evidence["image"]
        for event in operator.events()
        if isinstance(event, ev.Verified) and event.phase == "image"
    }
    assert len(pulled) == 1


def test_no_replica_waited_for_another(operator: Operator) -> None:
    """A replica's launch begins after its own two nodes are verified, whatever the others do."""
    begun: dict[str, int] = {}
    verified: dict[str, int] = {}
    for index, event in enumerate(operator.events()):
        if isinstance(event, ev.PhaseStarted) and event.phase == "launch":
            begun.setdefault(event.target, index)
        elif isinstance(event, ev.Verified) and event.phase == "weights-verify":
            verified.setdefault(event.target, index)
    assert sorted(begun) == REPLICAS
    assert len(verified) == 18
    assert min(begun.values()) < max(verified.values())


def test_teardown_takes_all_of_it(operator: Operator) -> None:
    said = operator.k3deploy("teardown", "--confirm", "--purge-weights")
    assert said.code == 0, said
    for node in operator.lab.nodes:
        assert node.ssh("sudo docker ps -aq").stdout == ""
