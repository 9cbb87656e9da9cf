"""Teardown: a look without --confirm; with it all of the run goes, in order, on every node that can be reached."""

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from k3deploy.domain import events as ev
from k3deploy.domain.command import Command, CommandResult
from k3deploy.domain.errors import NodeUnreachable, ProgramFailed
from k3deploy.domain.holdings import TeardownOptions
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.names import NodeName
from k3deploy.domain.profile.models import Release
from k3deploy.domain.run import Keys, RunRecord
from k3deploy.flows.runs import Runs
from k3deploy.flows.session import Outcome, Session
from k3deploy.flows.teardown import preview, teardown
from k3deploy.phases.launch import LaunchPhase
from k3deploy.runner.survey import BatchingSurvey
from k3deploy.testing import FakeWheelhouse, Recorder

from .engine_world import FOLDER, RUN, Container, World, run_phase, world

ALL = TeardownOptions(purges_weights=True, restores=True)
CHUNK = base64.b64encode(gzip.compress(b"1000.000 a line\n")).decode()


def serving() -> World:
    """A launched replica; each node has weights, a running job and a noted change of its storage."""
    w = world()
    run_phase(w, LaunchPhase(w.site))
    for name, machine in w.machines.items():
        machine.weights_bytes = 1_560_936_091_448
        machine.jobs = [{"name": "weights-fetch", "dir": f"{FOLDER}/jobs/weights-fetch", "state": "running"}]
        machine.journal = [{"kind": "folder", "path": "/ephemeral/hf"}]
        machine.gpu_used_mib = 0  # given back once its container is gone; see `holding`
        machine.acts.clear()
        node = w.nodes[name]
        progress = [{"name": "engine", "chunk": CHUNK}, {"name": "job-weights-fetch", "chunk": CHUNK}]
        node.on_program("logs_export", machine.call, progress=progress)
    return w


def session(w: World, recorder: Recorder | None = None) -> Session:
    record = RunRecord(
        run_id=RUN,
        profile=w.profile.name,
        addresses={str(entry.name): entry.address for entry in w.nodes_file.nodes},
        created_at=w.clock.now(),
        usd_per_hour=64.0,
    )
    runs = Runs(w.svc.store)
    if not runs.all():
        runs.create(record, profile_lock="schema: 1\n", nodes_lock={})
    return Session(
        record=record,
        profile=w.profile,
        nodes_file=w.nodes_file,
        topology=w.topology,
        svc=w.svc,
        survey=BatchingSurvey(w.nodes),  # only takes the standing questions: the answers come from svc.survey
        sink=recorder or Recorder(),
        option_lists=OptionLists(),
        wheelhouse=FakeWheelhouse(),
    )


def torn_down(w: World, options: TeardownOptions = ALL) -> tuple[Outcome, Recorder]:
    recorder = Recorder()
    return teardown(session(w, recorder), options), recorder


def state(w: World) -> str:
    return Runs(w.svc.store).get(RUN).state


def test_everything_goes_and_the_run_counts_as_torn_down() -> None:
    w = serving()
    outcome, recorder = torn_down(w)
    assert outcome.result.failures == {}
    assert (outcome.state.outcome, state(w)) == ("torn-down", "torn-down")
    for machine in w.machines.values():
        assert machine.container is None
        assert machine.files == {}
        assert machine.weights_bytes is None
        assert machine.acts == [
            "docker stop",
            "logs_export",
            "docker rm",
            "job_stop",
            "run_clear",
            "weights_purge",
            "storage_restore",
        ]
    proved = [event for event in recorder.of(ev.Verified) if event.phase == "prove-free"]
    assert [event.summary for event in proved] == ["GPUs and ports are free"] * 4


def test_without_options_weights_and_storage_stay() -> None:
    w = serving()
    outcome, _ = torn_down(w, TeardownOptions())
    assert outcome.result.is_done
    for machine in w.machines.values():
        assert machine.weights_bytes == 1_560_936_091_448
        assert machine.journal != []
        assert "storage_restore" not in machine.acts


def test_rank_0_is_stopped_before_its_followers() -> None:
    w = serving()
    order: list[str] = []
    for node in w.nodes.each():
        machine = w.machines[node.name]

        def stop(command: Command, name: str = str(node.name), machine: Any = machine) -> CommandResult:
            order.append(name)
            assert command.argv[:4] == ("docker", "stop", "-t", "60")
            done: CommandResult = machine.run(command)
            return done

        node.on_command(("docker", "stop"), stop)
    torn_down(w)
    assert order[0] == "gpu-01"
    assert sorted(order) == ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]


def test_logs_of_every_node_are_in_the_store_before_anything_is_removed() -> None:
    w = serving()
    ids = {name: machine.container.id[:12] for name, machine in w.machines.items() if machine.container}
    torn_down(w)
    keys = w.svc.store.list(f"runs/{RUN}/artifacts/logs/")
    expected = sorted(
        f"runs/{RUN}/artifacts/logs/{name}/{file}.log.gz"
        for name in w.names
        for file in (f"engine-{ids[name]}", "job-weights-fetch")
    )
    assert list(keys) == expected
    stored = w.svc.store.get(keys[0])
    assert stored is not None
    assert gzip.decompress(stored.data) == b"1000.000 a line\n"


def test_a_second_teardown_finds_nothing_to_do() -> None:
    w = serving()
    torn_down(w)
    for machine in w.machines.values():
        machine.acts.clear()
    outcome, _ = torn_down(w)
    assert outcome.result.is_done
    assert not outcome.result.has_changed
    assert [machine.acts for machine in w.machines.values()] == [[], [], [], []]


def test_nodes_where_nothing_was_ever_done_are_fine() -> None:
    w = world()
    for machine in w.machines.values():
        machine.gpu_used_mib = 0
    outcome, _ = torn_down(w)
    assert outcome.result.is_done
    assert not outcome.result.has_changed


def away(w: World, name: str) -> None:
    """Everything that is asked of this node fails as an unreachable one does."""
    gone = NodeUnreachable(what=f"{name}: no route to host", fix="look at it in the console")
    w.nodes[name].error = gone
    survey = w.svc.survey
    for section in ("facts", "container", "engine", "holdings"):
        survey.on(section, gone, node=name)  # type: ignore[attr-defined]


@pytest.mark.parametrize("lost", ["gpu-01", "gpu-03"])
def test_an_unreachable_node_is_named_while_the_others_are_finished(lost: str) -> None:
    w = serving()
    away(w, lost)
    outcome, _ = torn_down(w)
    assert set(outcome.result.failures) == {("logs-export", lost)}
    assert outcome.result.failures["logs-export", lost].what == f"{lost}: no route to host"
    assert (outcome.state.outcome, state(w)) == ("failed", "live")
    for name, machine in w.machines.items():
        if name != lost:
            assert machine.container is None, name
            assert machine.weights_bytes is None, name
    done = {target for (phase, target) in outcome.result.ended if phase == "prove-free"}
    assert done == {str(name) for name in w.names} - {lost}


def test_the_node_that_came_back_is_finished_by_the_next_teardown() -> None:
    w = serving()
    away(w, "gpu-03")
    torn_down(w)
    w.nodes["gpu-03"].error = None
    for section in ("facts", "container", "engine", "holdings"):
        w.svc.survey.on(section, w["gpu-03"].section, node="gpu-03")  # type: ignore[attr-defined]
    outcome, _ = torn_down(w)
    assert outcome.result.is_done
    assert state(w) == "torn-down"
    assert w["gpu-03"].container is None


def test_somebody_elses_container_is_left_alone() -> None:
    w = serving()
    theirs = Container("f" * 64, "other/app:1", ["serve"], [])
    w["gpu-02"].container = theirs
    outcome, recorder = torn_down(w)
    assert outcome.result.is_done
    assert w["gpu-02"].container is theirs
    assert theirs.status == "running"
    removed = [e.summary for e in recorder.of(ev.Verified) if (e.phase, e.target) == ("engine-remove", "gpu-02")]
    assert removed == ["container sgl (ffffffffffff) is not this run's and stays"]


def test_a_log_that_docker_cannot_give_out_keeps_nobodys_machines_running() -> None:
    w = serving()
    w.nodes["gpu-02"].on_program("logs_export", ProgramFailed(what="the log driver is none", fix="x"))
    outcome, recorder = torn_down(w)
    assert outcome.result.is_done
    assert w["gpu-02"].container is None
    assert any("the log driver is none" in event.message for event in recorder.of(ev.Progressed))


def test_memory_that_is_not_given_back_is_waited_for_and_then_named() -> None:
    w = serving()
    w["gpu-04"].gpu_used_mib = 70_960
    outcome, _ = torn_down(w)
    failure = outcome.result.failures["prove-free", "gpu-04"]
    assert failure.what.startswith("gpu-04: GPU 0: 70,960 MiB in use, and no process says why")
    assert sum(w.clock.slept) >= 120
    assert state(w) == "live"


def test_a_foreign_process_on_a_gpu_or_port_is_told_and_does_not_hold_the_run() -> None:
    w = serving()
    w["gpu-04"].gpu_used_mib = 20_000
    w["gpu-04"].gpu_processes = [
        {"pid": 77, "name": "python3", "used_mib": 20_000, "gpu_uuid": f"GPU-{index}", "container": None}
        for index in range(8)
    ]
    w["gpu-04"].listeners = [{"port": 8000, "pid": 78, "program": "node", "container": None}]
    outcome, recorder = torn_down(w)
    assert outcome.result.is_done
    told = [e.summary for e in recorder.of(ev.Verified) if (e.phase, e.target) == ("prove-free", "gpu-04")]
    assert "GPU 0: 20,000 MiB in use by pid 77 (python3), not of this run" in told[0]
    assert "port 8000 is held by pid 78 (node), not of this run" in told[0]


RELEASE = Release(argv=("sudo", "handback", "--now"), expect_stdout="RELEASED")


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        (CommandResult(0, "machine RELEASED\n", ""), None),
        (CommandResult(0, "queued\n", ""), "its output lacks 'RELEASED'"),
        (CommandResult(3, "", "no such machine"), "it ended with exit code 3"),
    ],
)
def test_the_profiles_release_command_runs_last_and_is_read_back(result: CommandResult, failure: str | None) -> None:
    w = serving()
    w.profile = w.profile.model_copy(update={"release": RELEASE})
    for node in w.nodes.each():
        node.on_command(("sudo", "handback"), result)
    outcome, _ = torn_down(w)
    for node in w.nodes.each():
        assert node.argvs[-1] == RELEASE.argv
    if failure is None:
        assert outcome.result.is_done
        torn_down(w)
        assert [node.argvs.count(RELEASE.argv) for node in w.nodes.each()] == [1, 1, 1, 1]
    else:
        assert outcome.result.failures["release", "gpu-01"].what == f"gpu-01: {failure}"
        assert state(w) == "live"


def test_a_secret_that_the_release_command_prints_is_not_kept_not_even_in_part() -> None:
    w = serving()
    w.profile = w.profile.model_copy(update={"release": RELEASE})
    key = "hf_abcdefghijklmnopqrstuvwxyz"
    rest = "\nRELEASED".ljust(4000 - 12, ".")  # the last 4,000 characters begin within the key
    for node in w.nodes.each():
        node.on_command(("sudo", "handback"), CommandResult(0, key + rest, ""))
    torn_down(w)
    kept = w.svc.store.get(Keys(RUN).artifact("release/gpu-01.json"))
    assert kept is not None
    assert json.loads(kept.data)["stdout"] == "***" + rest


def test_without_confirm_it_is_said_what_would_go_and_nothing_happens() -> None:
    w = serving()
    container = w["gpu-01"].container
    assert container is not None
    seen = preview(session(w), TeardownOptions())
    assert seen.text().splitlines()[:11] == [
        f"run {RUN} on 4 nodes; with --confirm this would be done:",
        "gpu-01 (203.0.113.1)",
        f"  stop    container sgl ({container.id[:12]}, running)",
        "  export  its log to the store",
        "  remove  the container",
        "  stop    jobs: weights-fetch",
        "  remove  files of the run: container.json, jobs, launch.json",
        (
            "  keep    1560.94 GB of weights in /ephemeral/hf/hub/models--moonshotai--Kimi-K3 "
            "(--purge-weights removes them)"
        ),
        "  keep    the storage as the run set it up; --restore would:",
        "            remove /ephemeral/hf",
        "gpu-02 (203.0.113.2)",
    ]
    assert [machine.acts for machine in w.machines.values()] == [[], [], [], []]


def test_the_look_says_what_the_options_would_change_and_who_is_away() -> None:
    w = serving()
    away(w, "gpu-02")
    w.profile = w.profile.model_copy(update={"release": RELEASE})
    body = preview(session(w), ALL).as_dict()
    first, second = body["nodes"][:2]
    assert first["would"][-3:] == [
        "remove  1560.94 GB of weights in /ephemeral/hf/hub/models--moonshotai--Kimi-K3",
        "restore remove /ephemeral/hf",
        "run     sudo handback --now",
    ]
    assert (second["is_reached"], second["would"]) == (False, ["not reached: gpu-02: no route to host"])


def test_a_node_without_anything_of_the_run_says_so() -> None:
    body = preview(session(world()), TeardownOptions()).as_dict()
    assert body["nodes"][0]["would"] == ["nothing of this run is there"]


def test_the_order_of_nodes_is_that_of_the_topology() -> None:
    w = serving()
    assert [node.node for node in preview(session(w), ALL).nodes] == [NodeName(f"gpu-0{at}") for at in (1, 2, 3, 4)]


def test_a_run_that_is_torn_down_already_can_still_be_restored() -> None:
    w = serving()
    torn_down(w, TeardownOptions())
    assert state(w) == "torn-down"
    first_end = Runs(w.svc.store).get(RUN).ended_at
    w.clock.advance(3600)
    outcome, _ = torn_down(w, replace(ALL, purges_weights=False))
    assert outcome.result.is_done
    assert all(machine.acts.count("storage_restore") == 1 for machine in w.machines.values())
    assert Runs(w.svc.store).get(RUN).ended_at == first_end
