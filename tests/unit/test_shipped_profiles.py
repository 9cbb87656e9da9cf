"""The shipped profiles hold the published facts: sizes, flags and prices are written down here again, by hand."""

import json
from pathlib import Path

import pytest

from k3deploy.adapters import profiles
from k3deploy.domain.profile.models import Profile

_COMMIT = "9f62e4e9fffbd0a83ddd60e1c209d828994b3569"
_PARSERS = {"reasoning-parser": "kimi_k3", "tool-call-parser": "kimi_k3"}


def _load(name: str) -> Profile:
    return profiles.load_profile(name)


@pytest.mark.parametrize("name", ["b300x8", "gb300-nvl72", "h100x32"])
def test_the_model_is_the_published_checkpoint(name: str) -> None:
    model = _load(name).model
    assert (model.repo, model.revision) == ("moonshotai/Kimi-K3", _COMMIT)
    assert (model.shards, model.shard_bytes, model.context_tokens) == (96, 1_560_936_091_448, 1_048_576)


def test_h100x32() -> None:
    profile = _load("h100x32")
    assert (profile.node_count, profile.hardware.gpus_per_node, profile.usd_per_hour) == (4, 8, 64.0)
    parallel = profile.pools[0].replicas.parallel
    assert (parallel.tensor, parallel.expert, parallel.pipeline, parallel.decode_context) == (32, 32, 1, 1)
    expect = profile.expect
    assert (expect.gpu_used_mib, expect.weights_gib_per_gpu, expect.decode_tok_per_s) == (70960, 59.63, 5.8)
    gpu = profile.hardware.gpu
    assert "NVIDIA H100 PCIe" in gpu.names
    assert "NVIDIA H100 80GB HBM3" in gpu.names
    assert gpu.memory_mib_min <= 81559


def test_b300x8_is_the_balanced_cell() -> None:
    profile = _load("b300x8")
    parallel = profile.pools[0].replicas.parallel
    assert (profile.node_count, parallel.tensor, parallel.decode_context, parallel.expert) == (1, 8, 8, 1)
    assert profile.engine.flags == {"trust-remote-code": True, "mem-fraction-static": 0.85, **_PARSERS}
    assert profile.engine.env == {}
    assert profile.hardware.gpu.memory_mib_min <= 275040


def test_gb300_is_nine_replicas_of_the_balanced_cell() -> None:
    profile = _load("gb300-nvl72")
    replicas = profile.pools[0].replicas
    assert (profile.node_count, replicas.count, replicas.nodes_each) == (18, 9, 2)
    assert (replicas.parallel.tensor, replicas.parallel.decode_context) == (8, 8)
    assert profile.engine.flags == {"trust-remote-code": True, "mem-fraction-static": 0.85, **_PARSERS}
    assert profile.engine.env == {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}
    assert (profile.hardware.nvlink_domain, profile.hardware.cpu_architecture) == ("rack", "aarch64")
    assert profile.usd_per_hour is None


def test_warnings_that_a_person_should_read() -> None:
    """32 x H100 leave little room (70,960 of 81,559 MiB are in use); the lab's stand-in CPUs are not Grace."""
    said = {found.name: profiles.load(found.name).warnings for found in profiles.listing(profiles.places())}
    assert {name: [fault.what for fault in faults] for name, faults in said.items() if faults} == {
        "h100x32": ["pool serve fits tightly: about 8.4 GB on each GPU for caches"],
        "lab-gb300-nvl72": ["gb300 nodes have Grace CPUs, which are aarch64"],
    }


@pytest.mark.parametrize(
    ("name", "variant"), [("lab-h100x32", "mini"), ("lab-b300x8", "mini"), ("lab-gb300-nvl72", "small12")]
)
def test_lab_profiles_name_the_lab_s_own_checkpoint(name: str, variant: str) -> None:
    text = (Path(__file__).parents[1] / "lab" / "checkpoint.json").read_text("utf-8")
    figures = json.loads(text)[variant]["lab/Kimi-K3-mini"]
    model = _load(name).model
    assert model.repo == figures["repo"]
    assert model.revision == figures["commit"]
    assert (model.shards, model.shard_bytes) == (figures["shards"], figures["shard_bytes"])


@pytest.mark.parametrize("name", ["h100x32", "b300x8", "gb300-nvl72"])
def test_lab_profiles_replace_only_what_the_lab_needs(name: str) -> None:
    parent = _load(name).model_dump(mode="json")
    lab = _load(f"lab-{name}").model_dump(mode="json")
    replaced = {"name", "description", "model", "storage", "network", "timeouts", "provenance"}
    for key in parent.keys() - replaced - {"engine", "hardware"}:
        assert lab[key] == parent[key], key
    assert {key for key in parent["engine"] if lab["engine"][key] != parent["engine"][key]} == {"image"}
    changed = {key for key in parent["hardware"] if lab["hardware"][key] != parent["hardware"][key]}
    assert changed == ({"cpu_architecture"} if name == "gb300-nvl72" else set())


def test_lock_of_every_shipped_profile_is_the_same_profile() -> None:
    for found in profiles.listing(profiles.places()):
        profile = _load(found.name)
        assert profiles.profile_from_lock(profiles.profile_to_lock(profile)) == profile


def test_a_lock_is_a_profile_for_everybody(tmp_path: Path) -> None:
    profile = _load("h100x32")
    path = tmp_path / "again.yaml"
    path.write_text(profiles.profile_to_lock(profile), "utf-8")
    assert profiles.load_profile(str(path)) == profile


def test_a_lock_of_older_rules_can_still_be_read_so_that_its_run_can_be_torn_down() -> None:
    profile = _load("h100x32")
    flags = {**profile.engine.flags, "reasoning-parser": "kimi_k2"}
    old = profile.model_copy(update={"engine": profile.engine.model_copy(update={"flags": flags})})
    assert profiles.profile_from_lock(profiles.profile_to_lock(old)) == old
