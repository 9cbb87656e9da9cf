"""The stand-in engine as processes: groups on loopback addresses that form, serve, misbehave and end as the real one.

Expected lines and figures are those of published runs, and of the engine's own source where a run shows none.
"""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.lab import checkpoint
from tests.lab.engine_process import EngineProcess, engine_group, free_port, lay_out_cache

READY = "The server is fired up and ready to roll!"
FOLLOWING = "Dummy health check server started in background thread at"
STAMP = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
H100 = [
    *("--tp-size", "32", "--ep-size", "32", "--mem-fraction-static", "0.85", "--dist-timeout", "3600"),
    *("--moe-runner-backend", "marlin", "--decode-attention-backend", "flashmla"),
]
H100_LOADED = (
    "Load weight end. elapsed=317.50 s, type=KimiK3ForConditionalGeneration, quant=compressed-tensors, "
    "avail mem=18.60 GB, mem usage=59.63 GB."
)
# One line of each stage as the published run printed it; the older releases print all of them.
H100_LINES = (
    "Init torch distributed begin.",
    "Init torch distributed ends. elapsed=41.49 s, mem usage=0.47 GB",
    "Load weight begin. avail mem=78.23 GB",
    "FlashInfer TRTLLM MoE deferred finalize is disabled (moe_runner_backend=marlin, quant_method=Mxfp4MoEMethod).",
    H100_LOADED,
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 140352, KV size: 3.62 GB",
    "Memory pool end. avail mem=11.57 GB",
    "Using hybrid attention backend for decode and prefill: decode_backend=flashmla, prefill_backend=fa3.",
)
H100_SCHEDULER = (
    "max_total_num_tokens=140352, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=49, "
    "context_len=1048576, available_gpu_mem=10.34 GB"
)


@pytest.fixture(scope="module")
def hub_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    checkpoint.build(root, "small12")
    return root


@pytest.fixture
def hf_home(tmp_path: Path, hub_root: Path) -> Path:
    home = tmp_path / "hf"
    lay_out_cache(home, hub_root)
    return home


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, hub_root: Path) -> Iterator[list[EngineProcess]]:
    """Two nodes of two GPUs that serve, for tests that only ask."""
    folder = tmp_path_factory.mktemp("serving")
    home = folder / "hf"
    lay_out_cache(home, hub_root)
    with engine_group(home, folder, options=["--enable-metrics"]) as engines:
        engines[0].wait_for(READY)
        engines[1].wait_for(FOLLOWING)
        yield engines


def misbehave(hf_home: Path, **told: Any) -> None:
    (hf_home / "lab-engine.json").write_text(json.dumps(told))


def test_four_nodes_print_what_the_published_run_printed(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 4, H100, LAB_ENGINE_VERSION="0.5.18") as engines:
        engines[0].wait_for(READY)
        for engine in engines[1:]:
            engine.wait_for(FOLLOWING)
        logs = [engine.log() for engine in engines]
    head = logs[0]
    for node, log in enumerate(logs):
        for rank in range(8 * node, 8 * node + 8):
            for text in H100_LINES:
                assert re.search(rf"^{STAMP} TP{rank} EP{rank}\] {re.escape(text)}$", log, re.MULTILINE), (rank, text)
        assert len(re.findall("Load weight end", log)) == 8
    assert re.search(rf"^{STAMP} TP0 EP0\] {re.escape(H100_SCHEDULER)}$", head, re.MULTILINE)
    for text in (
        "#words: 163840 - BOS ID: 163584 - EOS ID: 163585",
        "Applying special tokens cache patch for Kimi tokenizer",
        "INFO:     Application startup complete.",
        READY,
    ):
        assert re.search(rf"^{STAMP}\] {re.escape(text)}$", head, re.MULTILINE), text
    assert re.search(rf"^{STAMP}\] INFO:     Uvicorn running on http://127.0.0.1:\d+ \(Press CTRL", head, re.MULTILINE)
    assert re.search(r"\rLoading safetensors checkpoint shards: 100% Completed \| 12/12 \[", head)
    for log in logs[1:]:
        assert "max_total_num_tokens=" not in log
        assert READY not in log


def test_newer_releases_use_the_other_wording(serving: list[EngineProcess]) -> None:
    log = serving[1].log()
    for text in (
        r"TP4\] Init parallel begin\.",
        r"TP4\] Init parallel ends\. elapsed=\d+\.\d\d s$",
        r"TP7\] KV Cache VA upper bound\. dtype: torch\.bfloat16, #tokens: \d+, KV size: \d+\.\d\d GB",
        r"TP7\] Mamba Cache is allocated\. max_mamba_cache_size: \d+,",
        r"TP4\] Capture target decode CUDA graph begin\.",
        r"TP4\] Capture target decode CUDA graph end\. bs=",
        r"capped to \d+ by the mamba state cache \(max_mamba_cache_size=\d+, 5 state slots per request\)\.",
    ):
        assert re.search(text, log, re.MULTILINE), text
    assert "Init torch distributed" not in log
    assert "deferred finalize" not in log


def test_head_answers_and_follower_only_seems_to(serving: list[EngineProcess]) -> None:
    head, follower = serving
    for path in ("/health", "/health_generate", "/ready", "/ping", "/v1/models", "/model_info", "/server_info"):
        assert head.get(path) == 200, path
    for path in ("/health", "/health_generate", "/ping", "/metrics"):
        assert follower.get(path) == 200, path
    for path in ("/ready", "/v1/models", "/model_info", "/server_info"):
        assert follower.get(path) == 404, path
    assert head.get("/nothing") == 404
    assert head.request("GET", "/v1/chat/completions")[0] == 405


def test_model_list(serving: list[EngineProcess]) -> None:
    found = json.loads(serving[0].request("GET", "/v1/models")[1])
    assert found["object"] == "list"
    (card,) = found["data"]
    assert {name: card[name] for name in ("id", "object", "owned_by", "root", "max_model_len")} == {
        "id": checkpoint.REPO,
        "object": "model",
        "owned_by": "sglang",
        "root": checkpoint.REPO,
        "max_model_len": 1_048_576,
    }


def test_old_names_still_answer_and_say_so(serving: list[EngineProcess]) -> None:
    info = json.loads(serving[0].request("GET", "/get_model_info")[1])
    assert (info["reasoning_parser"], info["disaggregation_mode"]) == ("kimi_k3", "null")
    assert json.loads(serving[0].request("GET", "/get_server_info")[1])["version"] == "0.5.23"
    serving[0].wait_for("Endpoint '/get_model_info' is deprecated and will be removed in a future version.")


def test_metrics_have_the_engines_names(serving: list[EngineProcess]) -> None:
    text = serving[0].request("GET", "/metrics")[1]
    for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "max_total_num_tokens", "mamba_usage"):
        assert re.search(
            rf'^sglang:{name}{{model_name="{checkpoint.REPO}",engine_type="unified",tp_rank="0"', text, re.MULTILINE
        ), name


def test_the_first_request_of_the_published_run(serving: list[EngineProcess]) -> None:
    answer = serving[0].chat("Who are you? One sentence.", max_tokens=256)
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "Hello! I'm Kimi, an AI assistant developed by Moonshot AI."
    assert choice["message"]["reasoning_content"]
    assert choice["message"]["tool_calls"] is None
    assert choice["finish_reason"] == "stop"
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (137, 135, 272)
    assert usage["reasoning_tokens"] == 109


def test_effort_moves_the_thinking(serving: list[EngineProcess]) -> None:
    question = (
        "Three friends split a bill. Ana pays twice what Ben pays, and Ben pays 3 more than Cara. The total is 43. "
        "How much does each pay?"
    )
    tokens = {
        effort: serving[0].chat(question, reasoning_effort=effort)["usage"]["reasoning_tokens"]
        for effort in ("low", "high")
    }
    assert tokens == {"low": 54, "high": 184}


def test_an_unknown_effort_is_ignored_aloud(serving: list[EngineProcess]) -> None:
    assert serving[0].chat("What is 2 + 2?", reasoning_effort="no_think")["choices"][0]["message"]["content"] == "4"
    serving[0].wait_for("Kimi K3 supports thinking_effort low/high/max; ignoring reasoning_effort='no_think'.")


def test_a_limit_below_the_thinking_leaves_no_answer(serving: list[EngineProcess]) -> None:
    answer = serving[0].chat("What is 47 * 89?", reasoning_effort="low", max_tokens=50)
    (choice,) = answer["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", None)
    assert choice["message"]["reasoning_content"]
    assert answer["usage"]["completion_tokens"] == answer["usage"]["reasoning_tokens"] == 50


def test_two_tools_in_one_turn_then_an_answer(serving: list[EngineProcess]) -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "required": [argument]}}}
        for name, argument in (("calculate", "expression"), ("get_weather", "city"))
    ]
    question = {"role": "user", "content": "What is 47 * 89? Also, what's the weather in Tokyo?"}
    first = serving[0].chat("", messages=[question], tools=tools)["choices"][0]
    calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in first["message"]["tool_calls"]]
    assert calls == [("calculate", {"expression": "47*89"}), ("get_weather", {"city": "Tokyo"})]
    assert first["finish_reason"] == "tool_calls"
    result = {"role": "tool", "name": "calculate", "content": '{"result": 4183}'}
    last = serving[0].chat("", messages=[question, first["message"], result], tools=tools)["choices"][0]
    assert "4183" in last["message"]["content"]
    assert last["finish_reason"] == "stop"


def test_an_image_costs_25_tokens(serving: list[EngineProcess]) -> None:
    parts = [{"type": "text", "text": "Which colours?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    answer = serving[0].chat("", messages=[{"role": "user", "content": parts}])
    assert answer["usage"]["prompt_tokens_details"]["image_tokens"] == 25
    assert "red" in answer["choices"][0]["message"]["content"]


def test_streams_thinking_then_answer(serving: list[EngineProcess]) -> None:
    body = {
        "messages": [{"role": "user", "content": "What is 47 * 89?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    status, text = serving[0].request("POST", "/v1/chat/completions", body)
    assert status == 200
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    keys = [next(iter(delta), "end") for delta in deltas]
    assert keys == sorted(keys, key=["role", "reasoning_content", "content", "end"].index)
    assert "".join(delta.get("content") or "" for delta in deltas) == "4183"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] > chunks[-1]["usage"]["reasoning_tokens"] > 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "Messages cannot be empty"),
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, "must be at least 1"),
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 2**21}, "maximum context length of 1048576"),
        ({"messages": [{"role": "user", "content": "word " * 2_000_000}]}, "exceeds the maximum allowed length"),
    ],
)
def test_refuses_requests_it_can_not_serve(serving: list[EngineProcess], body: object, message: str) -> None:
    status, text = serving[0].request("POST", "/v1/chat/completions", body)
    assert status == 400
    assert message in json.loads(text)["message"]


def test_state_file_tells_memory_by_process(serving: list[EngineProcess]) -> None:
    head, follower = (engine.state() for engine in serving)
    assert (head["stage"], head["is_ready"]) == ("serving", True)
    assert (follower["stage"], follower["is_ready"]) == ("serving", False)
    assert head["pid"] == serving[0].pid
    assert [gpu["tp_rank"] for gpu in follower["gpus"]] == [4, 5, 6, 7]
    assert head["gpus"][0]["used_mib"] == head["gpus"][1]["used_mib"] + 830
    assert "--tp-size" in head["argv"]


def test_secrets_stay_out_of_the_state_file(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 1, HF_TOKEN="hf_very_secret") as engines:
        engines[0].wait_for(READY)
        assert engines[0].state()["env"]["HF_TOKEN"] == "***"


def test_an_api_key_leaves_health_open(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 1, ["--api-key", "let-me-in", "--enable-metrics"]) as engines:
        head = engines[0]
        head.wait_for(READY)
        assert [head.get(path) for path in ("/health", "/ready", "/metrics")] == [200, 200, 200]
        assert head.request("GET", "/v1/models") == (401, '{"error": "Unauthorized"}')
        assert head.request("GET", "/v1/models", headers={"Authorization": "Bearer let-me-in"})[0] == 200
        assert head.request("GET", "/v1/models", headers={"Authorization": "Bearer wrong"})[0] == 401
        assert "let-me-in" not in head.log()


def test_answers_503_until_the_warm_up_is_done(tmp_path: Path, hf_home: Path) -> None:
    misbehave(hf_home, hang_at="warmup")
    with engine_group(hf_home, tmp_path) as engines:
        head, follower = engines
        head.wait_for("Uvicorn running on")
        follower.wait_for(FOLLOWING)
        assert (head.get("/health"), head.get("/ready"), head.get("/v1/models")) == (503, 503, 200)
        assert follower.get("/health") == 200
        assert READY not in head.log()


def test_no_metrics_unless_asked(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 1) as engines:
        engines[0].wait_for(READY)
        assert engines[0].get("/metrics") == 404


def test_followers_wait_for_the_head_to_stop(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path) as (head, follower):
        head.wait_for(READY)
        follower.wait_for(FOLLOWING)
        follower.signal(signal.SIGTERM)
        follower.wait_for("SIGTERM received on node_rank 1; waiting for the rank-0 ShutdownReq broadcast")
        assert follower.is_running()
        assert head.get("/health") == 200
        head.signal(signal.SIGTERM)
        assert head.wait_for_end() == 0
        assert follower.wait_for_end() == 0
        assert "Gracefully exiting... Remaining number of requests 0." in head.log()


def test_a_lost_node_takes_the_group_down(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 3, ["--tp-size", "8", "--pp-size", "3"]) as (head, lost, other):
        head.wait_for(READY)
        other.wait_for(FOLLOWING)
        lost.end()
        for engine in (head, other):
            engine.wait_for_end()
            assert "Scheduler hit an exception: Traceback" in engine.log()
            assert "Received sigquit from a child process." in engine.log()
        assert "Connection closed by peer [127.0.0.2]:" in head.log()


def test_a_killed_scheduler_takes_the_group_down(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path) as (head, follower):
        head.wait_for(READY)
        follower.wait_for(FOLLOWING)
        pid = follower.state()["gpus"][1]["pid"]
        os.kill(pid, signal.SIGKILL)
        follower.wait_for_end()
        assert f"Subprocess scheduler_1 (pid={pid}) crashed with exit code -9." in follower.log()
        head.wait_for_end()


def test_schedulers_carry_their_name_and_end_with_the_engine(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 1) as (head,):
        head.wait_for(READY)
        folder = Path(f"/proc/{head.state()['gpus'][0]['pid']}")
        assert (folder / "comm").read_text() == "sglang::schedul\n"
        head.signal(signal.SIGTERM)
        head.wait_for_end()
        assert not folder.exists()


@pytest.mark.parametrize(
    ("followers", "message"),
    [
        ((1, 2), "Timed out after 2 seconds waiting for clients. 6/8 clients joined."),
        ((1, 2, 2), "wait timeout after 1000ms"),
    ],
    ids=["a rank is missing", "two ranks 2"],
)
def test_hangs_until_the_timeout(tmp_path: Path, hf_home: Path, followers: tuple[int, ...], message: str) -> None:
    """The head comes last, to followers that wait for it."""
    with engine_group(
        hf_home, tmp_path, 4, node_ranks=[*followers, 0], head_options=["--dist-timeout", "1"]
    ) as engines:
        for engine in engines[::-1]:
            engine.wait_for_end()
            assert "Init parallel begin." in engine.log()
            assert "Init parallel ends." not in engine.log()
        assert message in engines[-1].log()
        assert "Connection was likely closed. Did the remote server shutdown or crash?" in engines[0].log()


def test_two_ranks_0_never_form_a_group(tmp_path: Path, hf_home: Path) -> None:
    """A second rank 0, which on another machine can't listen on the head's address, joins the first one's group."""
    with engine_group(hf_home, tmp_path, 2, ["--dist-timeout", "3"], node_ranks=[0]) as (head,):
        host, port = head.option("--dist-init-addr").split(":")
        while head.is_running():
            with suppress(ConnectionRefusedError), socket.create_connection((host, int(port))) as second:
                second.sendall(json.dumps({"type": "join", "node_rank": 0, "nnodes": 2, "world": 8}).encode() + b"\n")
                head.wait_for_end()
            time.sleep(0.02)
        assert "wait timeout after 3000ms" in head.log()
        assert "Init parallel ends." not in head.log()


def test_without_the_head_followers_can_not_connect(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 2, ["--dist-timeout", "1"], node_ranks=[1]) as (follower,):
        follower.wait_for_end()
        assert "The client socket has timed out after 1000ms while trying to connect to (127.0.0.1" in follower.log()


def test_a_hung_node_is_caught_by_the_watchdog(tmp_path: Path, hf_home: Path) -> None:
    misbehave(hf_home, hang_at="load", node_ranks=[1])
    with engine_group(hf_home, tmp_path, 2, node_ranks=[1, 0], head_options=["--dist-timeout", "1"]) as (
        follower,
        head,
    ):
        assert head.wait_for_end() == 1
        assert "Watchdog caught collective operation timeout: WorkNCCL" in head.log()
        assert "scheduler died during initialization (exit code: -6)" in head.log()
        assert follower.state()["stage"] == "load"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"crash_at": "load"}, "Scheduler hit an exception: Traceback"),
        ({"crash_at": "graphs"}, "RuntimeError: asked to fail at graphs"),
        ({"oom_at": "load"}, "torch.OutOfMemoryError: CUDA out of memory."),
        ({"oom_at": "graphs"}, "torch.OutOfMemoryError: CUDA out of memory."),
        ({"kill_at": "load"}, "scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL)"),
        ({"memory_imbalance": True}, "RuntimeError: The memory capacity is unbalanced."),
        ({"gpu": "H100"}, "torch.OutOfMemoryError: CUDA out of memory."),
        ({"die_after_s": 0}, "crashed with exit code -9. Triggering SIGQUIT for cleanup..."),
    ],
)
def test_fails_as_told(tmp_path: Path, hf_home: Path, told: dict[str, Any], message: str) -> None:
    misbehave(hf_home, **told)
    with engine_group(hf_home, tmp_path, 1, ["--tp-size", "8"]) as (head,):
        head.wait_for_end()
        assert message in head.log()
        assert head.state()["stage"] == "failed"


def test_imbalance_is_a_warning_when_the_check_is_off(tmp_path: Path, hf_home: Path) -> None:
    misbehave(hf_home, memory_imbalance=True, capped=True)
    with engine_group(hf_home, tmp_path, 1, SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK="0") as (head,):
        head.wait_for(READY)
        assert "The memory capacity is unbalanced. Some GPUs may be occupied by other processes." in head.log()
        assert (
            "max_running_requests is capped to 60 by the mamba state cache "
            "(max_mamba_cache_size=303, 5 state slots per request)."
        ) in head.log()


def test_lies_as_told_and_stops_when_told(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 1) as (head,):
        head.wait_for(READY)
        misbehave(hf_home, model_id="some/other", max_model_len=32_768, unhealthy=True, empty_reasoning=True)
        card = json.loads(head.request("GET", "/v1/models")[1])["data"][0]
        assert (card["id"], card["max_model_len"], head.get("/health")) == ("some/other", 32_768, 503)
        answer = head.chat("What is 2 + 2?")
        assert answer["choices"][0]["message"]["reasoning_content"] is None
        assert answer["usage"]["reasoning_tokens"] == 0
        misbehave(hf_home, wrong_answer=True)
        assert "4" not in head.chat("What is 2 + 2?")["choices"][0]["message"]["content"]
        misbehave(hf_home, empty_content=True)
        assert head.chat("What is 2 + 2?")["choices"][0]["message"]["content"] is None
        misbehave(hf_home)
        assert head.chat("What is 2 + 2?")["choices"][0]["message"]["content"] == "4"
        assert head.get("/health") == 200


def test_parsers_of_another_model_leak_the_thinking(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path, 1, ["--reasoning-parser", "kimi_k2"]) as (head,):
        head.wait_for(READY)
        message = head.chat("What is 2 + 2?")["choices"][0]["message"]
        assert message["reasoning_content"] is None
        assert message["content"].startswith("<|think|>")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"GLOO_SOCKET_IFNAME": "ens99"}, "Unable to find interface for: [ens99]"),
        ({"NCCL_SOCKET_IFNAME": "ens99"}, "Bootstrap : no socket interface found"),
        ({"SGLANG_HOST_IP": "192.0.2.200"}, "Cannot assign requested address (addr='tcp://192.0.2.200:*')"),
    ],
)
def test_interfaces_and_addresses_must_be_here(
    tmp_path: Path, hf_home: Path, env: dict[str, str], message: str
) -> None:
    with engine_group(hf_home, tmp_path, 1, [], node_ranks=[], head_options=[], **env) as (head,):
        head.wait_for_end()
        assert message in head.log()


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (["--no-such-option"], 2, "sglang serve: error: unrecognized arguments: --no-such-option"),
        (["--tp-size", "3", "--nnodes", "2"], 1, "AssertionError: tp_size must be divisible by number of nodes"),
        (["--model-path", "lab/none"], 1, "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested"),
        (["--context-length", "a lot"], 2, "argument --context-length: invalid human_readable_int value: 'a lot'"),
    ],
)
def test_refuses_before_any_worker_starts(
    tmp_path: Path, hf_home: Path, options: list[str], exit_code: int, message: str
) -> None:
    with engine_group(hf_home, tmp_path, 1, options) as (head,):
        assert head.wait_for_end() == exit_code
        assert message in head.log()
        assert "begin." not in head.log()


def test_a_missing_shard_fails_the_load(tmp_path: Path, hf_home: Path) -> None:
    next(hf_home.glob("hub/*/snapshots/*/model-00007-*")).unlink()
    with engine_group(hf_home, tmp_path, 1) as (head,):
        head.wait_for_end()
        assert "Missing 1 file(s) from index model.safetensors.index.json: ['model-00007-of-000012" in head.log()


def test_a_taken_port_fails_at_the_end(tmp_path: Path, hf_home: Path) -> None:
    with engine_group(hf_home, tmp_path / "first", 1) as (first,):
        first.wait_for(READY)
        with engine_group(hf_home, tmp_path / "second", 1, ["--port", str(first.port)]) as (second,):
            assert second.wait_for_end() == 1
            assert "error while attempting to bind on address" in second.log()


def test_the_gate_holds_the_launch(tmp_path: Path, hf_home: Path) -> None:
    gate = free_port()
    with engine_group(hf_home, tmp_path, 2, ["--gated-launch-port", str(gate)]) as (head, follower):
        head.wait_for("Gated launch control server started on 127.0.0.1:")
        follower.wait_for("Gated launch waiting for activation. rank=4")
        assert "Load weight begin" not in head.log()
        port, head.port = head.port, gate
        assert head.get("/health") == 200
        assert head.request("POST", "/gate/activate")[0] == 200
        head.port = port
        head.wait_for(READY)
        assert "Gated launch activated." in follower.log()


def test_fewer_gpus_than_ranks(tmp_path: Path, hf_home: Path) -> None:
    gpus = tmp_path / "gpus.json"
    gpus.write_text(
        json.dumps({"count": 2, "name": "NVIDIA B300", "memory_total_mib": 275_040, "faults": {"lost": [1]}})
    )
    with engine_group(hf_home, tmp_path, 1, LAB_ENGINE_GPUS=str(gpus)) as (head,):
        head.wait_for_end()
        assert "CUDA error: invalid device ordinal" in head.log()
