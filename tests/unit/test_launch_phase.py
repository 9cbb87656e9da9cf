"""Launch: rank 0 first, a replica as one whole, only our containers, nothing repeated, no secret on a line."""

import pytest

from k3deploy.domain import events as ev
from k3deploy.domain.command import Command, CommandResult
from k3deploy.domain.errors import EngineError, NodeError
from k3deploy.phases.launch import LaunchPhase
from k3deploy.runner.unit import Ended

from .engine_world import FOLDER, IMAGE, STARTED_AT, Container, World, run_phase, script_log, steps, world


def launched() -> World:
    w = world()
    assert run_phase(w, LaunchPhase(w.site))[0] == [Ended.CHANGED]
    for machine in w.machines.values():
        machine.acts.clear()
    return w


def test_rank_0_starts_before_the_others_and_each_launch_is_noted_before_it_runs() -> None:
    w = world()
    ended, recorder = run_phase(w, LaunchPhase(w.site))
    assert ended == [Ended.CHANGED]
    assert steps(recorder) == [
        "note the launch on gpu-01, gpu-02, gpu-03, gpu-04",
        "start rank 0 on gpu-01",
        "start ranks 1 on gpu-02, 2 on gpu-03, 3 on gpu-04",
    ]
    for rank, name in enumerate(w.names):
        machine = w.machines[name]
        assert machine.acts == ["run_file", "docker run", "run_file"]
        assert machine.container is not None
        cmd = machine.container.cmd
        assert cmd[cmd.index("--node-rank") + 1] == str(rank)
        assert cmd[cmd.index("--dist-init-addr") + 1] == "10.0.0.1:20000"
        assert machine.container.image == IMAGE
        assert machine.files[f"{FOLDER}/launch.json"]["node_rank"] == rank
        assert machine.files[f"{FOLDER}/container.json"]["id"] == machine.container.id


def test_a_second_run_starts_nothing() -> None:
    w = launched()
    ended, recorder = run_phase(w, LaunchPhase(w.site))
    assert (ended, steps(recorder)) == ([Ended.UNCHANGED], [])
    assert [machine.acts for machine in w.machines.values()] == [[], [], [], []]


def test_without_its_marker_a_running_replica_is_recognised() -> None:
    w = launched()
    for key in w.svc.store.list("runs/"):
        w.svc.store.delete(key)
    ended, recorder = run_phase(w, LaunchPhase(w.site))
    assert ended == [Ended.UNCHANGED]
    assert recorder.of(ev.Planned)[0].reason == "all 4 ranks run what was rendered for them"


def test_a_dry_run_shows_the_commands_and_touches_nothing() -> None:
    w = world()
    ended, recorder = run_phase(w, LaunchPhase(w.site), is_dry=True)
    assert ended == [Ended.PENDING]
    details = recorder.of(ev.Planned)[0].details
    assert details[1].startswith("gpu-01: docker run -d --name sgl --gpus all")
    assert [line.split(":")[0] for line in details[2].splitlines()] == ["gpu-02", "gpu-03", "gpu-04"]
    assert [machine.acts for machine in w.machines.values()] == [[], [], [], []]


def test_one_lost_rank_takes_the_whole_replica_with_it_rank_0_first() -> None:
    w = launched()
    lost = w["gpu-03"].container
    assert lost is not None
    lost.status, lost.exit_code = "exited", 137
    before = {name: machine.container for name, machine in w.machines.items()}
    ended, recorder = run_phase(w, LaunchPhase(w.site))
    assert ended == [Ended.CHANGED]
    stop, remove = steps(recorder)[:2]
    assert stop == (
        "stop rank 0 on gpu-01, rank 1 on gpu-02, rank 3 on gpu-04, rank 0 first "
        "(rank 2 on gpu-03 exited with code 137: the whole replica starts again)"
    )
    assert remove == (
        "remove the old containers of rank 0 on gpu-01, rank 1 on gpu-02, rank 2 on gpu-03, rank 3 on gpu-04"
    )
    assert w["gpu-01"].acts == ["docker stop", "docker rm", "run_file", "docker run", "run_file"]
    # Its log is read once: verify found it down and looked for the reason.
    assert w["gpu-03"].acts == ["engine_logs", "docker rm", "run_file", "docker run", "run_file"]
    for name, machine in w.machines.items():
        assert machine.container is not None
        assert machine.container is not before[name]


def test_rank_0_is_stopped_before_its_followers() -> None:
    w = launched()
    order: list[str] = []
    for node in w.nodes.each():
        machine = w.machines[node.name]

        def stop(command: object, name: str = str(node.name), run: object = machine.run) -> CommandResult:
            order.append(name)
            return run(command)  # type: ignore[operator,no-any-return]

        node.on_command(("docker", "stop"), stop)
    gone = w["gpu-02"].container
    assert gone is not None
    gone.status = "exited"
    run_phase(w, LaunchPhase(w.site))
    assert order[0] == "gpu-01"
    assert sorted(order) == ["gpu-01", "gpu-03", "gpu-04"]


def test_a_rebooted_node_is_another_machine_and_its_replica_starts_again() -> None:
    w = launched()
    w["gpu-02"].boot_id = "boot-2"
    lost = w["gpu-02"].container
    assert lost is not None
    lost.status, lost.exit_code = "exited", 255
    ended, recorder = run_phase(w, LaunchPhase(w.site))
    assert ended == [Ended.CHANGED]
    assert "rank 2" not in steps(recorder)[0].split("(")[1]
    assert "rank 1 on gpu-02 exited with code 255" in steps(recorder)[0]


def test_a_wiped_node_that_lost_its_container_starts_the_replica_again() -> None:
    w = launched()
    w["gpu-04"].container, w["gpu-04"].files = None, {}
    _, recorder = run_phase(w, LaunchPhase(w.site))
    assert "rank 3 on gpu-04 is not there" in steps(recorder)[0]
    assert w["gpu-04"].acts == ["run_file", "docker run", "run_file"]


def test_another_launch_than_the_running_one_replaces_it_and_says_what_differs() -> None:
    w = launched()
    engine = w.profile.engine
    flags = {**engine.flags, "mem-fraction-static": 0.82}
    w.profile = w.profile.model_copy(update={"engine": engine.model_copy(update={"flags": flags})})
    _, recorder = run_phase(w, LaunchPhase(w.site))
    assert "rank 0 on gpu-01 runs another launch (0.85 -> 0.82)" in steps(recorder)[0]
    container = w["gpu-01"].container
    assert container is not None
    assert "0.82" in container.cmd


def foreign(cmd: list[str]) -> Container:
    return Container("f" * 64, "other/app:1", cmd, [])


def test_a_container_of_somebody_else_stops_us_and_is_never_touched() -> None:
    w = world()
    w["gpu-02"].container = theirs = foreign(["serve"])
    with pytest.raises(EngineError) as caught:
        run_phase(w, LaunchPhase(w.site))
    assert caught.value.what == "gpu-02: the name 'sgl' belongs to a container that k3deploy did not create"
    assert caught.value.context["found"] == "container ffffffffffff of image other/app:1, running"
    assert w["gpu-02"].container is theirs
    assert all(machine.acts == [] for machine in w.machines.values())


def test_the_same_command_started_by_hand_is_not_ours_either() -> None:
    w = launched()
    w["gpu-02"].files = {}  # nobody noted that we meant to start it
    with pytest.raises(EngineError, match="did not create"):
        run_phase(w, LaunchPhase(w.site))
    assert w["gpu-02"].acts == []


def test_a_container_changed_behind_our_back_is_not_ours() -> None:
    w = launched()
    container = w["gpu-02"].container
    assert container is not None
    w["gpu-02"].files[f"{FOLDER}/container.json"] = {"id": "0" * 64}
    container.cmd = ["bash"]
    with pytest.raises(EngineError, match="did not create"):
        run_phase(w, LaunchPhase(w.site))


def test_a_container_of_another_run_is_named_with_that_run() -> None:
    w = world()
    w["gpu-01"].container = foreign(["serve"])
    w["gpu-01"].other_claims = ["h100x32-20261101-080000-beef"]
    with pytest.raises(EngineError) as caught:
        run_phase(w, LaunchPhase(w.site))
    assert "another run, h100x32-20261101-080000-beef" in caught.value.what
    assert "k3deploy teardown --run-id h100x32-20261101-080000-beef --confirm" in caught.value.fix


def test_cut_off_between_start_and_note_the_container_is_still_known_as_ours() -> None:
    w = launched()
    for machine in w.machines.values():
        del machine.files[f"{FOLDER}/container.json"]
    ended, _ = run_phase(w, LaunchPhase(w.site))
    assert ended == [Ended.UNCHANGED]


def test_a_port_held_by_somebody_is_named_with_pid_and_program_before_anything_starts() -> None:
    w = world()
    w["gpu-01"].listeners = [{"port": 20000, "pid": 4711, "program": "python3 -m http.server", "container": None}]
    with pytest.raises(EngineError) as caught:
        run_phase(w, LaunchPhase(w.site))
    assert caught.value.what == "gpu-01: port 20000 is held by pid 4711 (python3 -m http.server)"
    assert all(machine.acts == [] for machine in w.machines.values())


def test_the_rendezvous_port_matters_on_the_head_only() -> None:
    w = world()
    w["gpu-03"].listeners = [{"port": 20000, "pid": 4711, "program": "jupyter", "container": None}]
    assert run_phase(w, LaunchPhase(w.site))[0] == [Ended.CHANGED]


def test_a_port_held_by_our_own_container_is_no_conflict() -> None:
    w = launched()
    lost = w["gpu-03"].container
    head = w["gpu-01"].container
    assert lost is not None
    assert head is not None
    w["gpu-01"].listeners = [{"port": 8000, "pid": 99, "program": "python3", "container": head.id}]
    lost.status = "exited"
    assert run_phase(w, LaunchPhase(w.site))[0] == [Ended.CHANGED]


def test_a_name_that_docker_frees_late_is_waited_for() -> None:
    w = launched()
    lost = w["gpu-02"].container
    assert lost is not None
    lost.status = "exited"
    w["gpu-02"].removal_takes = 3
    assert run_phase(w, LaunchPhase(w.site))[0] == [Ended.CHANGED]
    assert w.clock.slept == [0.5, 0.5, 0.5]  # it was there at three looks, gone at the fourth


def test_what_docker_refuses_is_said_with_its_own_words_and_their_meaning() -> None:
    w = world()
    words = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0"
    w["gpu-02"].refuses_run = CommandResult(125, "", words)
    with pytest.raises(EngineError) as caught:
        run_phase(w, LaunchPhase(w.site))
    error = caught.value
    assert error.what == "gpu-02: rank 1 was not started: the Docker daemon refused this container"
    assert "driver is older than the image asks for" in error.why
    assert words in str(error.context["found"])


def cut_off(w: World, name: str, status: str) -> None:
    """A `docker run` of ours that outlived the command which sent it: its container appears under our next one."""
    machine, node = w[name], w.nodes[name]

    def run(command: Command) -> CommandResult:
        first = machine.run(command)
        assert first.succeeded
        assert machine.container is not None
        machine.container.status = status
        return machine.run(command)

    node.on_command(("docker", "run"), run)


def test_a_start_of_ours_that_was_still_under_way_is_taken() -> None:
    w = world()
    cut_off(w, "gpu-02", "running")
    assert run_phase(w, LaunchPhase(w.site))[0] == [Ended.CHANGED]
    container = w["gpu-02"].container
    assert container is not None
    assert w["gpu-02"].files[f"{FOLDER}/container.json"]["id"] == container.id


def test_a_container_that_never_comes_up_is_a_failure() -> None:
    w = world()
    cut_off(w, "gpu-02", "created")
    with pytest.raises(EngineError, match="rank 1 was not started"):
        run_phase(w, LaunchPhase(w.site))
    assert sum(w.clock.slept) >= 20


def test_without_a_docker_daemon_the_node_is_named() -> None:
    w = world()
    w["gpu-04"].docker = "absent"
    with pytest.raises(NodeError, match="gpu-04: there is no Docker daemon"):
        run_phase(w, LaunchPhase(w.site))


def test_a_rank_that_ends_at_once_fails_the_launch_with_its_last_words() -> None:
    w = world()
    said = [(STARTED_AT + 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB.")]
    script_log(w, "gpu-02", (STARTED_AT + 2, said))
    for node in w.nodes.each():
        if node.name == "gpu-02":
            machine = w.machines[node.name]

            def dies(command: object, run: object = machine.run, machine: object = machine) -> CommandResult:
                done: CommandResult = run(command)  # type: ignore[operator]
                machine.container.status, machine.container.exit_code = "exited", 2  # type: ignore[attr-defined]
                return done

            node.on_command(("docker", "run"), dies)
    with pytest.raises(NodeError) as caught:
        run_phase(w, LaunchPhase(w.site))
    assert caught.value.what == "serve-0: rank 1 on gpu-02 exited with code 2"
    assert caught.value.why == (
        "rank 1 on gpu-02 ended first: a GPU ran out of memory "
        "(it said: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB.)"
    )
    assert "mem-fraction-static" in caught.value.fix


def test_a_public_api_gets_a_key_in_a_file_and_on_no_line() -> None:
    w = world(is_public=True)
    _, recorder = run_phase(w, LaunchPhase(w.site))
    assert "make the API key on gpu-01, unless it is there" in steps(recorder)
    key = w["gpu-01"].files[f"{FOLDER}/engine.yaml"].split('"')[1]
    assert len(key) >= 43  # 32 random bytes
    for node in w.nodes.each():
        assert key not in repr(node.commands)
        assert key not in repr(node.programs)
    assert key not in repr(recorder.events)
    assert key not in repr([w.svc.store.get(k) for k in w.svc.store.list("")])
    assert any(FOLDER in event.message for event in recorder.of(ev.Progressed))
    head = w["gpu-01"].container
    assert head is not None
    assert "--config" in head.cmd
    assert f"{FOLDER}/engine.yaml" not in w["gpu-02"].files


def test_a_key_that_is_there_is_kept_at_a_relaunch() -> None:
    w = world(is_public=True)
    run_phase(w, LaunchPhase(w.site))
    key = w["gpu-01"].files[f"{FOLDER}/engine.yaml"]
    lost = w["gpu-02"].container
    assert lost is not None
    lost.status = "exited"
    run_phase(w, LaunchPhase(w.site))
    assert w["gpu-01"].files[f"{FOLDER}/engine.yaml"] == key
