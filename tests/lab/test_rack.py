"""A whole rack: 18 nodes, nine replicas, each launched when its own two nodes are ready."""

from collections.abc import Iterator

import pytest

from k3deploy.domain import events as ev
from tests.lab.lab import Lab
from tests.lab.operator import Operator, steps_after_success

pytestmark = pytest.mark.lab
REPLICAS = [f"serve-{index}" for index in range(9)]


@pytest.fixture(scope="module")
def operator() -> Iterator[Operator]:
    # Only the checkpoint is small (12 files): the hub client's CPU decides on a machine with two cores.
    lab = Lab.up("rack", profile="lab-gb300-nvl72", nodes=18, variant="small12")
    yield Operator(lab)
    lab.down()


def test_a_broken_node_holds_up_its_own_replica_and_no_other(operator: Operator) -> None:
    """With a barrier anywhere, nobody would answer: gpu-18 never passes its check."""
    operator.lab.node("gpu-18").fault("gpu-lost")
    said = operator.k3deploy("up", "--profile", "lab-gb300-nvl72")
    assert said.code == 3, said
    assert "gpu-18" in said.stderr
    answered = {event.target for event in operator.events() if isinstance(event, ev.Verified) and event.phase == "chat"}
    assert sorted(answered) == REPLICAS[:8]


def test_nine_replicas_on_eighteen_nodes_answer(operator: Operator) -> None:
    operator.lab.node("gpu-18").fault("gpu-back")
    said = operator.k3deploy("up", "--profile", "lab-gb300-nvl72", "--output", "json")
    assert said.code == 0, said
    assert sorted(said.json["answers"]) == REPLICAS
    assert all(answer["answer"] and answer["reasoning"] for answer in said.json["answers"].values())
    events = operator.events()
    pulled = {event.evidence["image"] for event in events if isinstance(event, ev.Verified) and event.phase == "image"}
    assert len(pulled) == 1
    assert steps_after_success(events) == []


def test_teardown_takes_all_of_it(operator: Operator) -> None:
    said = operator.k3deploy("teardown", "--confirm", "--purge-weights")
    assert said.code == 0, said
    for node in operator.lab.nodes:
        assert node.ssh("sudo docker ps -aq").stdout == ""
