"""The stand-in engine's command line against what is known of the real one's."""

from pathlib import Path

import pytest

from tests.lab.engine.launch import resolve
from tests.lab.engine.model_files import K3_CODE
from tests.lab.engine.options import human_readable_int, parse, release_flags
from tests.lab.engine.rules import check_launch, check_model, warnings

NEWEST = "0.5.23"
BASE = ("--model-path", "moonshotai/Kimi-K3")
CONFIG = {"text_config": {"num_attention_heads": 96, "hidden_size": 7168, "num_experts": 896, "vocab_size": 163_840}}


def test_knows_all_published_options() -> None:
    assert len(release_flags(NEWEST)) == 531


def test_defaults_are_the_engines() -> None:
    args = parse(BASE, NEWEST)
    assert (args.host, args.port, args.tp_size, args.nnodes, args.node_rank) == ("127.0.0.1", 30000, 1, 1, 0)
    assert (args.disaggregation_bootstrap_port, args.watchdog_timeout, args.dist_timeout) == (8998, 300, None)


@pytest.mark.parametrize(
    ("options", "dest", "value"),
    [
        (("--tp", "16"), "tp_size", 16),
        (("--dp", "2"), "dp_size", 2),
        (("--attn-dp", "2"), "attn_dp_size", 2),
        (("--tp-size=8",), "tp_size", 8),
        (("--tensor-parallel-size", "8"), "tp_size", 8),
        (("--reasoning-parser", "kimi_k2"), "reasoning_parser", "kimi_k2"),
        (("--context-length", "1Mi"), "context_length", 1_048_576),
    ],
)
def test_accepts_what_the_engine_accepts(options: tuple[str, ...], dest: str, value: object) -> None:
    assert getattr(parse([*BASE, *options], NEWEST), dest) == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pp", "2"), "ambiguous option: --pp could match --pp-"),
        (("--cuda-graph-max-bs", "64"), "ambiguous option: --cuda-graph-max-bs could match"),
        (("--mamba-radix-cache-strategy", "lazy"), "invalid choice: 'lazy'"),
        (("--tp-size", "eight"), "argument --tp-size/--tensor-parallel-size: invalid int value: 'eight'"),
        (("--expert-paralel", "2"), "unrecognized arguments: --expert-paralel 2"),
        (("--port",), "argument --port: expected one argument"),
        (("--enable-metrics=yes",), "ignored explicit argument 'yes'"),
        (("--preferred-sampling-params", "{"), "argument --preferred-sampling-params: invalid loads value"),
    ],
)
def test_refuses_with_the_parsers_own_words(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse([*BASE, *options], NEWEST)
    assert stop.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("sglang serve: error: ")
    assert message in last


def test_needs_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--tp-size", "8"], NEWEST)
    assert "the following arguments are required: --model-path" in capsys.readouterr().err


def test_takes_the_model_as_the_first_word() -> None:
    assert parse(["some/model", "--tp-size", "2"], NEWEST).model_path == "some/model"


@pytest.mark.parametrize(
    ("flag", "versions_with_it", "versions_without_it"),
    [
        ("--attn-dp-size", ("0.5.23", "0.5.99"), ("0.5.18", "0.5.20")),
        ("--gated-launch-port", ("0.5.20", "0.5.23"), ("0.5.18",)),
        ("--shared-experts-tp-size", ("0.5.21", "0.5.23"), ("0.5.18", "0.5.20")),
        ("--language-model-only", ("0.5.18", "0.5.23"), ()),
        ("--cuda-graph-max-bs", ("0.5.18",), ("0.5.20", "0.5.23")),
    ],
)
def test_options_come_and_go_with_releases(
    flag: str, versions_with_it: tuple[str, ...], versions_without_it: tuple[str, ...]
) -> None:
    for version in versions_with_it:
        assert flag in {entry["flag"] for entry in release_flags(version)}, version
    for version in versions_without_it:
        assert flag not in {entry["flag"] for entry in release_flags(version)}, version


@pytest.mark.parametrize(("text", "value"), [("8192", 8192), ("8k", 8000), ("8Ki", 8192), ("1Mi", 2**20), ("2G", 2e9)])
def test_sizes_may_have_suffixes(text: str, value: int) -> None:
    assert human_readable_int(text) == value


def test_a_config_file_comes_before_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text("# ours\napi-key: 'se''cret'\nport: 8000\nenable-metrics: true\ntrust-remote-code: false\n")
    args = parse([*BASE, "--config", str(path), "--port", "9000"], NEWEST)
    assert (args.api_key, args.port, args.enable_metrics, args.trust_remote_code) == ("se'cret", 9000, True, False)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("engine.json", "{}", "Config file must be YAML format, got: .json"),
        ("engine.yaml", "  port: 1\n", "only `key: value` lines are understood here"),
    ],
)
def test_a_config_file_it_can_not_use_is_an_error(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        parse([*BASE, "--config", str(path)], NEWEST)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--tp-size 8 --nnodes 3", "tp_size must be divisible by number of nodes"),
        ("--tp-size 8 --nnodes 2 --node-rank 2", "node_rank must be in"),
        ("--tp-size 16 --nnodes 2 --dp-size 2", "multi-node data-parallel replicas are not supported"),
        ("--tp-size 8 --attn-dp-size 0", "--attn-dp-size must be positive"),
        ("--tp-size 8 --attn-dp-size 2 --dp-size 2", "replicas combined with attention data parallelism"),
        ("--tp-size 8 --ep-size 16", "ep_size . moe_dp_size must be less than or equal to tp_size"),
        ("--served-model-name a:b", "served_model_name cannot contain a colon"),
        ("--dcp-size 0", "must be at least 1, but got dcp_size=0"),
        ("--tp-size 8 --dcp-size 3", "must be divisible by dcp_size"),
        ("--tp-size 8 --dcp-comm-backend a2a", "only affects the decode context parallel exchange"),
        ("--tp-size 8 --dcp-size 8 --decode-attention-backend flashmla", "requires the cutedsl_mla or aiter"),
        ("--mamba-radix-cache-strategy extra_buffer_lazy --pp-size 2", "requires the overlap scheduler"),
        (
            "--mamba-radix-cache-strategy extra_buffer_lazy --disaggregation-mode decode",
            "extra_buffer_lazy unsupported under PD disaggregation",
        ),
        ("--mamba-radix-cache-strategy no_buffer", "no_buffer do not support overlap schedule"),
        ("--mamba-radix-cache-strategy no_buffer --page-size 64", "no_buffer only supports page_size=1."),
        ("--speculative-algorithm MAGIC", "Unknown speculative algorithm name: MAGIC"),
        ("--speculative-algorithm DSPARK", "requires --speculative-draft-model-path"),
        ("--speculative-algorithm DSPARK --speculative-draft-model-path d --pp-size 2", "only supports pp_size == 1"),
        ("--enable-linear-replayssm-spec --disaggregation-mode prefill", "not supported on a PD prefill server"),
        ("--shared-experts-tp-size 8", "requires an expert-parallel all-to-all backend"),
        ("--model-loader-extra-config {", "Expecting property name"),
    ],
)
def test_main_process_refuses(options: str, message: str) -> None:
    launch = resolve(parse([*BASE, *options.split()], NEWEST), NEWEST)
    with pytest.raises((AssertionError, ValueError), match=message):
        check_launch(launch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--tp-size 64", "96 is not divisible by 64"),
        ("--tp-size 40", "96 is not divisible by 40"),
        ("--tp-size 12", "7168 is not divisible by 12"),
        ("--tp-size 32 --ep-size 32 --attn-dp-size 2", None),
        ("--tp-size 64 --ep-size 64 --attn-dp-size 8", None),
        ("--tp-size 32 --ep-size 32", None),
    ],
)
def test_the_model_is_cut_evenly_or_not_at_all(options: str, message: str | None) -> None:
    launch = resolve(parse([*BASE, *options.split()], NEWEST), NEWEST)
    check_launch(launch)
    if message is None:
        check_model(launch, CONFIG)
        return
    with pytest.raises(AssertionError, match=message):
        check_model(launch, CONFIG)


def test_says_what_is_deprecated() -> None:
    options = ["--enable-dp-attention", "--dp-size", "2", "--tp-size", "16"]
    launch = resolve(parse([*BASE, *options], NEWEST), NEWEST)
    assert launch.attn_dp_size == 2
    (said,) = warnings(launch, options)
    assert said.startswith("--enable-dp-attention is deprecated")
    assert said.endswith("Please use --attn-dp-size instead.")


@pytest.mark.parametrize(
    ("options", "tags"),
    [
        ("--tp-size 32 --ep-size 32 --nnodes 4 --node-rank 3", [f"TP{n} EP{n}" for n in range(24, 32)]),
        ("--tp-size 8 --nnodes 2 --node-rank 1", ["TP4", "TP5", "TP6", "TP7"]),
        ("--tp-size 2 --pp-size 2 --nnodes 2 --node-rank 1", ["PP1 TP0", "PP1 TP1"]),
        ("--tp-size 4 --pp-size 2", [f"PP{p} TP{t}" for p in range(2) for t in range(4)]),
        ("--tp-size 4 --attn-dp-size 2", ["DP0 TP0", "DP0 TP1", "DP1 TP2", "DP1 TP3"]),
        ("--tp-size 1", [""]),
    ],
)
def test_ranks_of_a_node(options: str, tags: list[str]) -> None:
    launch = resolve(parse([*BASE, *options.split()], NEWEST), NEWEST)
    assert [rank.tag for rank in launch.ranks()] == tags


def test_knows_the_models_code_files() -> None:
    assert len(K3_CODE) == 8
