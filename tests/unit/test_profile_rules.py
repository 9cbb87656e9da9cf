"""Rules that the table of wrong input does not reach: warnings, and what must not be complained about."""

import pytest

from k3deploy.adapters import engines, profiles
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.profile import rules
from k3deploy.domain.profile.fit_rules import weights_bytes_per_gpu
from k3deploy.domain.profile.models import Profile


def _warnings(name: str, *settings: str) -> list[str]:
    return [fault.what for fault in profiles.load(name, settings).warnings]


def _broken(name: str, **update: object) -> list[str]:
    """Names of the rules that find a fault in a profile that no loader would let through."""
    profile = profiles.load_profile(name).model_copy(update=update)
    return [rule.name for rule in rules.table(engines.option_lists("sglang")) if list(rule.check(profile))]


def test_rule_names_are_unique() -> None:
    names = [rule.name for rule in rules.table(OptionLists())]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "setting", "warning"),
    [
        ("b300x8", "engine.flags.enable-symm-mem=true", "enable-symm-mem does nothing together with decode_context"),
        (
            "h100x32",
            "engine.flags.dist-timeout=600",
            "a replica over several Hopper nodes needs a longer dist-timeout",
        ),
        ("b300x8", "engine.flags.disable-cuda-graph=true", "--disable-cuda-graph is deprecated in sglang 0.5.23"),
        (
            "b300x8",
            "network.rendezvous_port=40000",
            "`rendezvous_port` lies where the kernel picks ports for outgoing connections",
        ),
        (
            "b300x8",
            "engine.versions='<0.5.20'",
            "no option list of sglang <0.5.20: flags are unchecked",
        ),
        (
            "gb300-nvl72",
            "hardware.cpu_architecture=x86_64",
            "gb300 nodes have Grace CPUs, which are aarch64",
        ),
    ],
)
def test_warnings_are_returned(name: str, setting: str, warning: str) -> None:
    assert warning in _warnings(name, setting)


def test_megamoe_over_blackwell_nodes_warns_and_in_one_rack_does_not() -> None:
    settings = (
        "engine.flags.moe-a2a-backend=megamoe",
        "pools[0].replicas={nodes_each: 2, parallel: {tensor: 16, expert: 16}}",
    )
    assert "megamoe over several NVLink domains" in _warnings("b300x8", *settings)
    rack = "pools[0].replicas={count: 1, nodes_each: 4, parallel: {tensor: 16, expert: 16}}"
    assert _warnings("gb300-nvl72", settings[0], rack) == []


def test_replay_and_lazy_buffer_in_a_prefill_role() -> None:
    profile = profiles.load_profile("b300x8")
    pool = profile.pools[0]
    prefill = pool.model_copy(
        update={
            "replicas": pool.replicas.model_copy(update={"role": "prefill"}),
            "flags": {"enable-linear-replayssm-spec": True, "mamba-radix-cache-strategy": "extra_buffer_lazy"},
        }
    )
    assert _broken("b300x8", pools=(prefill,)) == ["lazy-buffer", "replay-on-prefill", "roles"]


def test_the_shapes_that_work_are_let_through() -> None:
    """Reported: 2x8 B200 (TP8 PP2), 2x8 H200 (TP16 EP16), 4x4 GB200 (TP16)."""
    b200 = "hardware.gpu={model: b200, names: [NVIDIA B200], memory_mib_min: 183359, architecture: blackwell}"
    assert _warnings("b300x8", b200, "pools[0].replicas={nodes_each: 2, parallel: {tensor: 8, pipeline: 2}}") == []
    h200 = "hardware.gpu={model: h200, names: [NVIDIA H200], memory_mib_min: 143771, architecture: hopper}"
    pools = "pools[0].replicas={nodes_each: 2, parallel: {tensor: 16, expert: 16}}"
    assert _warnings("h100x32", h200, pools) == []


def test_computed_weights_are_near_the_measured_ones() -> None:
    """Measured: 59.63 GiB on 32 x H100, 195.32 GiB on 8 x B300. Computed within 2%."""

    def gib(name: str) -> float:
        profile: Profile = profiles.load_profile(name)
        return weights_bytes_per_gpu(profile, profile.pools[0]) / 2**30

    assert gib("h100x32") == pytest.approx(59.63, rel=0.02)
    assert gib("b300x8") == pytest.approx(195.32, rel=0.02)


def test_a_fault_of_two_pools_is_said_once() -> None:
    pools = "pools=[{name: a, replicas: R}, {name: b, replicas: R}]".replace(
        "R", "{nodes_each: 1, parallel: {tensor: 8}}"
    )
    with pytest.raises(Exception, match="reasoning-parser must be K3's") as error:
        profiles.load("b300x8", [pools, "engine.flags.reasoning-parser=kimi_k2"])
    assert not hasattr(error.value, "failures")
