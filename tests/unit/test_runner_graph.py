"""Which unit waits for which."""

import pytest

from k3deploy.domain.errors import UsageError
from k3deploy.domain.names import PhaseName
from k3deploy.runner.graph import closure, dependencies, units
from tests.unit.runner_world import SetPhase, World, node, replica


def _flow() -> tuple[SetPhase, ...]:
    world = World()
    nodes = tuple(node(name) for name in ("a", "b", "c", "d"))
    pairs = (replica("serve-0", "a", "b"), replica("serve-1", "c", "d"))
    return (
        SetPhase(PhaseName("verify"), world, nodes),
        SetPhase(PhaseName("image"), world, nodes),
        SetPhase(PhaseName("launch"), world, pairs, needs=(PhaseName("verify"), PhaseName("image"))),
    )


def test_a_replica_waits_for_its_own_nodes_only() -> None:
    waits = dependencies(units(_flow()))
    by_key = {unit.key: {need.key for need in needs} for unit, needs in waits.items()}
    assert by_key["launch", "serve-1"] == {("verify", "c"), ("verify", "d"), ("image", "c"), ("image", "d")}
    assert by_key["verify", "a"] == set()


def test_until_runs_a_phase_and_what_it_needs() -> None:
    assert [phase.name for phase in closure(_flow(), "launch")] == ["verify", "image", "launch"]
    assert [phase.name for phase in closure(_flow(), "image")] == ["image"]


def test_until_refuses_an_unknown_phase_and_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no phase is called 'lunch'") as caught:
        closure(_flow(), "lunch")
    assert caught.value.fix == "use one of: verify, image, launch"


def test_a_need_that_no_phase_meets_is_refused() -> None:
    world = World()
    lonely = SetPhase(PhaseName("chat"), world, (node("a"),), needs=(PhaseName("ready"),))
    with pytest.raises(ValueError, match="chat needs ready"):
        dependencies(units((lonely,)))
