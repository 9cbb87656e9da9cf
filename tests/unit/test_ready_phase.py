"""Ready: a start followed by all ranks' logs at once; who fails first or holds the others up is named."""

from collections.abc import Callable
from typing import Any

import pytest

from k3deploy.domain import events as ev
from k3deploy.domain.errors import EngineError, Interrupted, NodeError, NodeUnreachable
from k3deploy.phases.launch import LaunchPhase
from k3deploy.phases.ready import ReadyPhase
from k3deploy.runner.unit import Ended
from k3deploy.testing import FakeCancel, Recorder

from .engine_world import FOLDER, STARTED_AT, World, run_phase, script_log, steps, world

LOADED = "type=KimiK3ForConditionalGeneration, quant=compressed-tensors, avail mem=18.60 GB, mem usage=59.63 GB."
SCHEDULER = (
    "max_total_num_tokens=140352, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=49, "
    "context_len=1048576, available_gpu_mem=10.34 GB"
)
Lines = list[tuple[float, str]]


def start_lines(rank: int, until: str = "graphs", *, load_s: float = 317.5) -> Lines:
    """What one node prints, in the older wording, at seconds after its start; the head also says when it is ready."""
    tag = f"[2026-07-28 07:39:14 TP{8 * rank} EP{8 * rank}]"
    loaded = 58 + load_s
    told: list[tuple[str, float, str]] = [
        ("tokenizer", 14, "[2026-07-28 07:39:14] Applying special tokens cache patch for Kimi tokenizer"),
        ("begin", 15, f"{tag} Init torch distributed begin."),
        ("group", 57, f"{tag} Init torch distributed ends. elapsed=41.49 s, mem usage=0.47 GB"),
        ("loading", 58, f"{tag} Load weight begin. avail mem=78.23 GB"),
        ("moe", 58, f"{tag} x (moe_runner_backend=marlin, quant_method=Mxfp4MoEMethod)."),
        ("bar", 200, "Loading safetensors checkpoint shards:  43% Completed | 41/96 [01:23<01:51, 2.02s/it]"),
        ("loaded", loaded, f"{tag} Load weight end. elapsed={load_s:.2f} s, {LOADED}"),
        (
            "pools",
            loaded + 2,
            f"{tag} KV Cache is allocated. dtype: torch.bfloat16, #tokens: 140352, KV size: 3.62 GB",
        ),
        ("pools", loaded + 3, f"{tag} Memory pool end. avail mem=11.57 GB"),
        ("graphs", loaded + 5, f"{tag} Capture target decode CUDA graph begin. avail mem=11.57 GB"),
        ("graphs", loaded + 200, f"{tag} Capture target decode CUDA graph end. bs=[1], elapsed=195.00 s"),
    ]
    if rank == 0:
        told += [
            ("scheduler", loaded + 250, f"{tag} {SCHEDULER}"),
            ("http", loaded + 251, "[2026-07-28 07:49:32] INFO:     Application startup complete."),
            ("ready", loaded + 290, "[2026-07-28 07:50:15] The server is fired up and ready to roll!"),
        ]
    names = [name for name, _, _ in told]
    last = max(index for index, name in enumerate(names) if name == until)
    return [(STARTED_AT + at, text) for _, at, text in told[: last + 1]]


def said(world: World, name: str, lines: Lines, *, now: float | None = None) -> None:
    """Script this node's log as one batch, heard at `now` (the last line's time when not given)."""
    when = now if now is not None else (lines[-1][0] if lines else STARTED_AT)
    script_log(world, name, (when, lines))


class Socket:
    """A connection that came about; nothing is sent on it."""

    def close(self) -> None:
        """It is not kept."""


def starting() -> World:
    """Launched, and every rank prints a healthy start."""
    w = world()
    run_phase(w, LaunchPhase(w.site))
    said(w, "gpu-01", start_lines(0, "ready"))
    for rank, name in ((1, "gpu-02"), (2, "gpu-03"), (3, "gpu-04")):
        said(w, name, start_lines(rank))
    for machine in w.machines.values():
        machine.acts.clear()
    return w


def failing(w: World) -> EngineError:
    with pytest.raises(EngineError) as caught:
        run_phase(w, ReadyPhase(w.site))
    return caught.value


def messages(recorder: Recorder) -> list[str]:
    return [event.message for event in recorder.of(ev.Progressed)]


def test_the_plan_says_how_long_it_may_take_and_took_where_it_was_measured() -> None:
    w = starting()
    phase = ReadyPhase(w.site)
    target = phase.targets()[0]
    (step,) = phase.plan(target, phase.probe(w.svc, target)).steps
    # 660 s: the field report that h100x32 comes from
    assert step.detail.endswith("; where it was measured, 11 min 00 s in all")


def test_a_healthy_start_is_followed_and_read_back() -> None:
    w = starting()
    ended, recorder = run_phase(w, ReadyPhase(w.site))
    assert ended == [Ended.CHANGED]
    told = recorder.of(ev.Verified)[0]
    assert told.summary == (
        "4 ranks ready; context_len 1,048,576 advertised; the KV pool holds one request of at most 140,352 tokens; "
        "49 requests at a time"
    )
    assert told.evidence["longest_request_tokens"] == 140_352
    assert told.evidence["stages_s"]["gpu-01"]["group_formed"] == 57
    assert told.evidence["stages_s"]["gpu-01"]["loaded"] == 375.5
    assert told.evidence["stages_s"]["gpu-01"]["ready"] == 665.5
    assert told.evidence["memory"][0] == "rank 0 on gpu-01: 70,960 MiB used on 8 GPUs, 70,960 expected"


def test_each_stage_of_each_rank_is_said_once() -> None:
    w = starting()
    # The head's log comes in two pieces, so that a state between them can be seen.
    lines = start_lines(0, "ready")
    script_log(w, "gpu-01", (STARTED_AT + 200, lines[:6]), (STARTED_AT + 700, lines[6:]))
    _, recorder = run_phase(w, ReadyPhase(w.site))
    heard = messages(recorder)
    assert "gpu-01 rank 0: ready" in heard
    assert "gpu-02 rank 1: CUDA graphs recorded" in heard
    assert len(heard) == len(set(heard))


def test_a_second_run_reads_no_log_and_keeps_the_evidence() -> None:
    w = starting()
    _, first = run_phase(w, ReadyPhase(w.site))
    for machine in w.machines.values():
        machine.acts.clear()
    ended, second = run_phase(w, ReadyPhase(w.site))
    assert ended == [Ended.UNCHANGED]
    assert [machine.acts for machine in w.machines.values()] == [[], [], [], []]
    assert second.of(ev.Verified)[0].evidence == first.of(ev.Verified)[0].evidence


def test_a_lost_marker_does_not_make_it_follow_again() -> None:
    w = starting()
    run_phase(w, ReadyPhase(w.site))
    for key in w.svc.store.list("runs/"):
        w.svc.store.delete(key)
    ended, recorder = run_phase(w, ReadyPhase(w.site))
    assert (ended, steps(recorder)) == ([Ended.UNCHANGED], [])


def test_what_was_kept_of_other_containers_does_not_count() -> None:
    w = starting()
    run_phase(w, ReadyPhase(w.site))
    w["gpu-02"].boot_id = "boot-2"
    container = w["gpu-02"].container
    assert container is not None
    container.status = "exited"
    run_phase(w, LaunchPhase(w.site))
    for rank, name in enumerate(w.names):
        said(w, str(name), start_lines(rank, "ready" if rank == 0 else "graphs"))
    ended, recorder = run_phase(w, ReadyPhase(w.site))
    assert ended == [Ended.CHANGED]
    assert steps(recorder) == ["follow the logs of 4 ranks until the engine is ready"]


def test_the_first_rank_that_failed_is_named_not_the_ones_that_followed() -> None:
    w = starting()
    died = STARTED_AT + 120
    said(
        w,
        "gpu-03",
        [
            *start_lines(2, "bar"),
            (died, "[2026-07-28 07:41:00 TP16 EP16] Scheduler hit an exception: Traceback (most recent call last):"),
            (died, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB."),
            (died, "[2026-07-28 07:41:00] Received sigquit from a child process. It usually means the child failed."),
        ],
        now=died + 5,
    )
    w["gpu-03"].ends = {"status": "exited", "exit_code": 0, "finished_at": died + 1}
    for rank, name in ((0, "gpu-01"), (1, "gpu-02"), (3, "gpu-04")):
        lost = f"RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:{rank}"
        # This node's clock is behind, so its failure seems to come first.
        said(w, name, [*start_lines(rank, "loading"), (died - 30, lost)], now=died + 5)
        w[name].ends = {"status": "exited", "exit_code": 1, "finished_at": died - 29}
    error = failing(w)
    assert error.what == (
        "serve-0: rank 2 on gpu-03 failed first, at stage: loading weights; its container exited with code 0"
    )
    assert error.why == (
        "a GPU ran out of memory (it said: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB.)"
    )
    assert "mem-fraction-static" in error.fix
    assert error.context["node"] == "gpu-03"
    assert "torch.OutOfMemoryError" in str(error.context["last lines"])


def test_after_a_failure_every_rank_is_stopped_rank_0_first_and_all_logs_are_kept() -> None:
    w = starting()
    w["gpu-02"].ends = {"status": "exited", "exit_code": 137, "oom_killed": True, "finished_at": STARTED_AT + 70}
    said(w, "gpu-01", start_lines(0, "group"), now=STARTED_AT + 80)
    said(w, "gpu-02", start_lines(1, "loading"))
    error = failing(w)
    assert "killed for lack of memory" in error.what
    assert [machine.acts.count("docker stop") for machine in w.machines.values()] == [1, 1, 1, 1]
    kept = w.svc.store.get(str(error.context["log"]))
    assert kept is not None
    text = kept.data.decode()
    for name in w.names:
        assert f"on {name}" in text
    assert "Load weight begin" in text


def test_a_rank_killed_without_a_word_is_explained_by_its_code() -> None:
    w = starting()
    said(w, "gpu-01", start_lines(0, "loading"), now=STARTED_AT + 90)
    said(w, "gpu-04", start_lines(3, "loading"))
    w["gpu-04"].ends = {"status": "exited", "exit_code": 137, "finished_at": STARTED_AT + 70}
    error = failing(w)
    assert "rank 3 on gpu-04" in error.what
    assert "SIGKILL" in error.why


def test_a_group_that_never_forms_names_the_silent_rank_and_who_cannot_reach_the_head() -> None:
    w = starting()
    late = STARTED_AT + 601  # group_s of this profile is 600
    said(w, "gpu-01", start_lines(0, "begin"), now=late)
    said(w, "gpu-02", start_lines(1, "begin"), now=late)
    said(w, "gpu-03", [], now=late)
    said(w, "gpu-04", start_lines(3, "begin"), now=late)

    def timed_out() -> Any:
        raise NodeError(what="gpu-03: no connection", why="timed out", fix="open the port")

    for name in ("gpu-02", "gpu-04"):
        w.nodes[name].on_dial("10.0.0.1", 20000, Socket)
    w.nodes["gpu-03"].on_dial("10.0.0.1", 20000, timed_out)
    error = failing(w)
    assert error.what == (
        "serve-0: forming the process group is not done after 10 min 01 s: "
        "rank 2 on gpu-03 never began to join; the others wait for it"
    )
    assert error.context["reach"] == (
        "gpu-02 -> 10.0.0.1:20000 reached; gpu-03 -> 10.0.0.1:20000 not reached (timed out); "
        "gpu-04 -> 10.0.0.1:20000 reached"
    )
    assert error.context["wanted"] == "at most 10 min 00 s (timeouts.group_s)"
    assert [machine.acts.count("docker stop") for machine in w.machines.values()] == [1, 1, 1, 1]


def test_a_dead_rank_and_a_silent_one_are_told_apart() -> None:
    # Three ranks wait, one printed nothing, one exited with its own last line: the exited one is the cause.
    w = starting()
    said(w, "gpu-01", start_lines(0, "begin"), now=STARTED_AT + 60)
    said(w, "gpu-02", start_lines(1, "begin"))
    said(w, "gpu-03", [])
    said(w, "gpu-04", [(STARTED_AT + 3, "address resolution failed")])
    w["gpu-04"].ends = {"status": "exited", "exit_code": 1, "finished_at": STARTED_AT + 4}
    error = failing(w)
    assert "rank 3 on gpu-04 failed first" in error.what
    assert "its last line: address resolution failed" in error.why
    assert "rank 2 on gpu-03: container started" in str(error.context["ranks"])


@pytest.mark.parametrize(
    ("until", "now", "span", "setting"),
    [
        ("bar", 57 + 1801, "loading weights", "timeouts.load_s"),
        ("graphs", 375.5 + 1201, "memory pools, CUDA graphs and warm-up", "timeouts.warmup_s"),
    ],
)
def test_each_part_of_a_start_has_its_own_deadline(until: str, now: float, span: str, setting: str) -> None:
    w = starting()
    said(w, "gpu-01", start_lines(0, until), now=STARTED_AT + now)
    if until == "bar":
        for rank, name in ((1, "gpu-02"), (2, "gpu-03"), (3, "gpu-04")):
            said(w, name, start_lines(rank, "bar"))
    error = failing(w)
    assert f"{span} is not done after" in error.what
    assert setting in str(error.context["wanted"])


def test_a_slow_disk_is_said_though_nothing_failed() -> None:
    w = starting()
    said(w, "gpu-01", start_lines(0, "ready", load_s=317.5), now=STARTED_AT + 2000)
    said(w, "gpu-03", start_lines(2, load_s=780.0), now=STARTED_AT + 2000)
    _, recorder = run_phase(w, ReadyPhase(w.site))
    # 780 s against 317.5 s of the others.
    assert (
        "gpu-03 rank 2 loaded 7 min 42 s after the first one: its disk is slow, and --dist-timeout has to outlast that"
    ) in messages(recorder)


def test_ctrl_c_stops_the_watching_and_not_the_engine() -> None:
    w = starting()
    said(w, "gpu-01", start_lines(0, "loading"))
    cancel = FakeCancel()

    class SetWhenAsked(FakeCancel):
        """Set after the step began: the runner asks once before it."""

        asked = 0

        @property
        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 1

    w.svc = type(w.svc)(**{**vars(w.svc), "cancel": SetWhenAsked()})
    assert not cancel.is_set
    with pytest.raises(Interrupted, match="its engine goes on starting on the nodes"):
        run_phase(w, ReadyPhase(w.site))
    assert all("docker stop" not in machine.acts for machine in w.machines.values())


def test_a_link_that_breaks_is_the_nodes_failure_and_stops_nothing() -> None:
    w = starting()
    said(w, "gpu-01", start_lines(0, "loading"))
    broken = NodeUnreachable(what="gpu-02: the link broke", fix="again")
    w.nodes["gpu-02"].on_program("engine_logs", broken, progress=[])
    with pytest.raises(NodeUnreachable):
        run_phase(w, ReadyPhase(w.site))
    assert all("docker stop" not in machine.acts for machine in w.machines.values())


def test_logs_that_end_while_the_containers_run_do_not_wait_for_ever() -> None:
    w = starting()
    said(w, "gpu-01", start_lines(0, "loading"))
    assert "the logs of all ranks ended" in failing(w).what


def test_a_rank_that_ended_before_it_was_followed_is_still_explained() -> None:
    w = starting()
    container = w["gpu-02"].container
    assert container is not None
    container.status, container.exit_code = "exited", 1
    w["gpu-02"].ends = {"status": "exited", "exit_code": 1, "finished_at": STARTED_AT + 16}
    said(w, "gpu-02", [*start_lines(1, "begin"), (STARTED_AT + 16, "ValueError: no such backend")])
    said(w, "gpu-01", start_lines(0, "begin"), now=STARTED_AT + 30)
    error = failing(w)
    assert "rank 1 on gpu-02 failed first" in error.what
    assert error.why == "it said: ValueError: no such backend"


def test_a_container_that_is_gone_is_for_launch_to_mend() -> None:
    w = starting()
    w["gpu-02"].container = None
    assert failing(w).what == "serve-0: there is no engine on gpu-02"


def test_a_rank_that_hangs_alone_is_told_from_a_group_that_cannot_form() -> None:
    w = starting()
    said(w, "gpu-01", start_lines(0, "loading"), now=STARTED_AT + 601)
    said(w, "gpu-03", start_lines(2, "begin"), now=STARTED_AT + 601)
    for name in ("gpu-02", "gpu-03", "gpu-04"):
        w.nodes[name].on_dial("10.0.0.1", 20000, Socket)
    assert failing(w).what.endswith("rank 2 on gpu-03 got no further, though the others went on: it hangs")


def unhealthy(w: World) -> None:
    w["gpu-03"].health = 503


def other_model(w: World) -> None:
    w["gpu-01"].model = "moonshotai/Kimi-K2"


def short_context(w: World) -> None:
    w["gpu-01"].max_model_len = 32_768


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (unhealthy, "serve-0: rank 2 on gpu-03: /health answers 503"),
        (other_model, "serve-0: gpu-01: /v1/models lists moonshotai/Kimi-K2, not moonshotai/Kimi-K3"),
        (short_context, "serve-0: gpu-01: /v1/models says max_model_len 32768, the profile says 1048576"),
    ],
)
def test_a_ready_line_alone_is_not_believed(spoil: Callable[[World], None], words: str) -> None:
    w = starting()
    spoil(w)
    with pytest.raises(NodeError) as caught:
        run_phase(w, ReadyPhase(w.site))
    assert caught.value.what == words


def test_memory_that_deviates_and_other_oddities_are_warnings() -> None:
    w = starting()
    w["gpu-04"].gpu_used_mib = 60_100  # 15 % below
    lines = [(at, text.replace("marlin", "triton").replace("10.34", "2.50")) for at, text in start_lines(0, "ready")]
    said(w, "gpu-01", lines)
    ended, recorder = run_phase(w, ReadyPhase(w.site))
    assert ended == [Ended.CHANGED]
    warnings = recorder.of(ev.Verified)[0].evidence["warnings"]
    assert warnings[0] == "rank 3 on gpu-04, GPU 0: 60,100 MiB used, 70,960 expected"
    assert "--moe-runner-backend marlin was asked for, the engine uses triton" in warnings
    assert any(line.startswith("only 2.50 GiB of GPU memory are left") for line in warnings)
    assert "requests above 140,352 tokens cannot be served, though 1,048,576 are advertised" in warnings


def test_the_heads_http_process_may_hold_a_little_more() -> None:
    w = starting()
    w["gpu-01"].gpu_used_mib = 71_790  # published: one card of 32, 830 MiB above the others
    _, recorder = run_phase(w, ReadyPhase(w.site))
    assert not any("GPU" in line for line in recorder.of(ev.Verified)[0].evidence["warnings"])


def test_what_the_logs_told_is_kept_on_the_head() -> None:
    w = starting()
    run_phase(w, ReadyPhase(w.site))
    kept = w["gpu-01"].files[f"{FOLDER}/ready.json"]
    assert set(kept["containers"]) == {"gpu-01", "gpu-02", "gpu-03", "gpu-04"}
    assert kept["kv_gib_per_gpu"] == 3.62
    assert f"{FOLDER}/ready.json" not in w["gpu-02"].files
