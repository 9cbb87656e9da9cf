"""What the runner does with units: order, resume, dry run, failures, interruption, retries."""

from dataclasses import replace

import pytest

from k3deploy.domain import events as ev
from k3deploy.domain.errors import Bug, NodeError, NodeUnreachable
from k3deploy.domain.names import PhaseName
from k3deploy.runner.marker import Markers
from k3deploy.runner.run import Result, Runner
from k3deploy.runner.unit import UnitRunner
from k3deploy.testing import FakeCancel, FakeClock, Recorder, services
from tests.unit.runner_world import KEYS, SetPhase, World, node, replica, runner

A, B = PhaseName("a"), PhaseName("b")


def _two_phases(world: World) -> tuple[SetPhase, SetPhase]:
    nodes = (node("n1"), node("n2"))
    return SetPhase(A, world, nodes), SetPhase(B, world, (replica("r", "n1", "n2"),), needs=(A,))


def test_everything_runs_in_the_order_of_its_needs() -> None:
    world = World()
    run, recorder, _ = runner()
    result = run.run(_two_phases(world))
    assert result.is_done
    assert result.has_changed
    assert world.performed[-1] == ("b", "r")
    assert set(world.performed[:2]) == {("a", "n1"), ("a", "n2")}
    intents = [type(event).__name__ for event in recorder.events if getattr(event, "target", "") == "r"]
    assert intents == ["PhaseStarted", "Planned", "StepStarted", "Progressed", "StepFinished", "Verified"]


def test_a_second_run_performs_nothing_and_changes_nothing() -> None:
    world = World()
    svc = services()
    runner(svc)[0].run(_two_phases(world))
    done = list(world.performed)
    run, recorder, _ = runner(svc)
    result = run.run(_two_phases(world))
    assert world.performed == done
    assert result.is_done
    assert not result.has_changed
    assert not any(isinstance(event, ev.StepStarted) for event in recorder.events)


def test_a_marker_is_only_a_hint_a_node_that_drifted_is_repaired() -> None:
    world = World()
    svc = services()
    runner(svc)[0].run(_two_phases(world))
    world.facts.discard(("a", "n2"))
    runner(svc)[0].run(_two_phases(world))
    assert world.performed[3:] == [("a", "n2")]


def test_changed_inputs_make_an_old_marker_worthless_but_a_probe_may_still_find_nothing_to_do() -> None:
    world = World()
    svc = services()
    first, _ = _two_phases(world)
    runner(svc)[0].run((first,))
    run, recorder, _ = runner(svc)
    run.run((replace(first, digest="v2"),))
    planned = [event for event in recorder.events if isinstance(event, ev.Planned)]
    assert [event.reason for event in planned] == ["already set", "already set"]


def test_a_dry_run_performs_nothing_stores_nothing_and_says_what_it_cannot_know_yet() -> None:
    world = World()
    run, recorder, svc = runner(is_dry=True)
    result = run.run(_two_phases(world))
    assert world.performed == []
    assert result.has_pending
    assert svc.store.list("runs/") == []
    planned = {(e.phase, e.target): (e.steps, e.reason) for e in recorder.events if isinstance(e, ev.Planned)}
    assert planned["a", "n1"] == (("set a",), "")
    assert planned["b", "r"] == ((), "known once what it needs is done")


def test_one_failure_blocks_only_what_needs_it_and_every_failure_is_kept() -> None:
    world = World()
    error = NodeError(what="no disk", fix="mount it")
    nodes = (node("n1"), node("n2"), node("n3"))
    broken = SetPhase(A, world, nodes[:2], probe_error=error)
    fine = SetPhase(B, world, nodes)
    after = SetPhase(PhaseName("c"), world, nodes, needs=(A, B))
    result = runner()[0].run((broken, fine, after))
    assert set(result.failures) == {("a", "n1"), ("a", "n2")}
    assert set(result.blocked) == {("c", "n1"), ("c", "n2")}
    assert ("c", "n3") in result.ended
    assert not result.is_done


def test_work_that_does_not_show_when_read_back_is_a_failure() -> None:
    world = World()
    result = runner()[0].run((SetPhase(A, world, (node("n1"),), sticks=False),))
    assert result.failures["a", "n1"].what == "n1: is not set"
    assert result.failures["a", "n1"].fix == "set it"


def test_a_fault_of_ours_becomes_a_bug_not_a_traceback() -> None:
    world = World()

    def explode() -> None:
        raise ZeroDivisionError("oops")

    world.before["a", "n1"] = explode
    result = runner()[0].run((SetPhase(A, world, (node("n1"),)),))
    assert isinstance(result.failures["a", "n1"], Bug)


def test_a_transient_failure_is_tried_again_and_a_final_one_is_not() -> None:
    world = World()
    tries: list[int] = []

    def flaky() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise NodeUnreachable(what="link down", fix="wait")

    world.before["a", "n1"] = flaky
    run, recorder, _ = runner()
    assert run.run((SetPhase(A, world, (node("n1"),)),)).is_done
    assert [event.attempt for event in recorder.events if isinstance(event, ev.Retried)] == [1, 2]

    tries.clear()
    world.facts.clear()

    def final() -> None:
        tries.append(1)
        raise NodeError(what="no disk", fix="mount it")

    world.before["a", "n1"] = final
    assert not runner()[0].run((SetPhase(A, world, (node("n1"),)),)).is_done
    assert len(tries) == 1


def test_after_an_interrupt_the_step_in_hand_finishes_and_nothing_after_it_starts() -> None:
    world = World()
    cancel = FakeCancel()
    world.before["a", "n1"] = cancel.set
    first = SetPhase(A, world, (node("n1"),))
    second = SetPhase(B, world, (node("n1"),), needs=(A,))
    svc = services(cancel=cancel)
    result: Result = runner(svc)[0].run((first, second))
    assert result.is_interrupted
    assert world.performed == [("a", "n1")]
    assert result.ended.keys() == {("a", "n1")}
    assert result.blocked == {("b", "n1"): "interrupted before it started"}


@pytest.mark.parametrize("count", [1, 40])
def test_many_targets_all_end(count: int) -> None:
    world = World()
    nodes = tuple(node(f"n{i}") for i in range(count))
    result = runner()[0].run((SetPhase(A, world, nodes), SetPhase(B, world, nodes, needs=(A,))))
    assert len(result.ended) == 2 * count


def test_another_try_is_announced_before_the_wait_for_it() -> None:
    """A Ctrl-C during the wait ends it: what was announced is on the screen by then, and no second try begins."""
    world = World()
    clock = FakeClock()

    def unreachable() -> None:
        raise NodeUnreachable(what="link down", fix="wait")

    world.before["a", "n1"] = unreachable
    svc = services(clock=clock, cancel=FakeCancel(clock=clock, after_waits=1))
    recorder = Recorder()
    run = Runner(svc, UnitRunner(svc, Markers(svc.store, KEYS), recorder), recorder)
    began = clock.now()
    result = run.run((SetPhase(A, world, (node("n1"),)),))
    announced = [event for event in recorder.events if isinstance(event, ev.Retried)]
    assert [(event.attempt, event.delay_s, event.at - began) for event in announced] == [(1, 2.0, 0.0)]
    assert ("a", "n1") in result.failures
