"""Rendering beyond the golden files: keys, addresses, pools' own flags, attention groups, pipelines."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from k3deploy.adapters import engines, profiles
from k3deploy.domain.launch.as_data import launch_data
from k3deploy.domain.launch.base import Address, Launch
from k3deploy.domain.launch.render import engine_key_file, image_reference, render
from k3deploy.domain.launch.script import script
from k3deploy.domain.names import NodeName
from tests.golden.made import cluster

_DIGEST = "sha256:" + "b" * 64


def _render(name: str, *settings: str, key_file: str | None = None) -> tuple[Launch, ...]:
    profile = profiles.load(name, settings).profile
    topology, addresses = cluster(profile)
    return render(profile, topology, addresses, image=image_reference(profile.engine), key_file=key_file)


def _flags(launch: Launch) -> dict[str, str | None]:
    return {flag.name: flag.value for flag in launch.flags}


def test_pipeline_and_attention_groups() -> None:
    settings = ["engine.versions='>=0.5.22'", "pools[0].replicas={nodes_each: 2, parallel: {tensor: 16, expert: 16}}"]
    flags = _flags(_render("b300x8", *settings, "pools[0].replicas.parallel.attention_data=2")[1])
    assert flags["--attn-dp-size"] == "2"
    assert flags["--nnodes"] == "2"
    assert "--dp-size" not in flags
    piped = _flags(_render("b300x8", "pools[0].replicas={nodes_each: 2, parallel: {tensor: 8, pipeline: 2}}")[0])
    assert (piped["--tp-size"], piped["--pp-size"]) == ("8", "2")


def test_a_pool_s_own_flag_and_variable_win() -> None:
    settings = ["pools[0].flags={mem-fraction-static: 0.8}", "pools[0].env={NCCL_CUMEM_ENABLE: '0', NCCL_DEBUG: INFO}"]
    launch = _render("h100x32", *settings)[0]
    fraction = next(flag for flag in launch.flags if flag.name == "--mem-fraction-static")
    assert (fraction.value, fraction.source) == ("0.8", "profile:pools[0].flags.mem-fraction-static")
    variables = {variable.name: variable for variable in launch.environment}
    assert variables["NCCL_CUMEM_ENABLE"].value == "0"
    assert variables["NCCL_DEBUG"].source == "profile:pools[0].env.NCCL_DEBUG"
    assert len(variables) == len(launch.environment)


def test_ipv6_addresses_stand_in_brackets_before_a_port() -> None:
    profile = profiles.load_profile("h100x32")
    topology, addresses = cluster(profile)
    six = {node: Address(node, f"fd00::{i}", "ens6") for i, node in enumerate(addresses, start=10)}
    launch = render(profile, topology, six, image="i")[1]
    assert _flags(launch)["--dist-init-addr"] == "[fd00::10]:20000"
    assert _flags(launch)["--host"] == "fd00::11"
    assert ("NCCL_SOCKET_FAMILY", "AF_INET6") in [(v.name, v.value) for v in launch.environment]


def test_mixed_families_are_refused() -> None:
    profile = profiles.load_profile("h100x32")
    topology, addresses = cluster(profile)
    mixed = {**addresses, NodeName("gpu-02"): Address(NodeName("gpu-02"), "fd00::2", "ens6")}
    with pytest.raises(ValueError, match="mixes IPv4 and IPv6"):
        render(profile, topology, mixed, image="i")


@pytest.mark.parametrize(("setting", "key_file"), [("network.api=public", None), ("network.api=private", "/k.yaml")])
def test_a_key_file_belongs_to_a_public_api(setting: str, key_file: str | None) -> None:
    with pytest.raises(ValueError, match="a key file belongs to api: public"):
        _render("b300x8", setting, key_file=key_file)


def test_secret_files_are_named_on_the_head_only() -> None:
    launches = _render("h100x32", "network.api=public", key_file="/ephemeral/k3deploy/r/engine.yaml")
    assert [launch.secret_files for launch in launches] == [("/ephemeral/k3deploy/r/engine.yaml",), (), (), ()]


def test_the_key_file_is_what_the_engine_s_config_option_reads() -> None:
    assert engine_key_file("k3-Abc_123") == b'api-key: "k3-Abc_123"\n'
    for key in ("", "with space", 'quote"', "line\n", "ü"):
        with pytest.raises(ValueError, match="letters, digits"):
            engine_key_file(key)


def test_image_reference() -> None:
    engine = profiles.load_profile("h100x32").engine
    assert image_reference(engine) == "lmsysorg/sglang:kimi-k3"
    assert image_reference(engine, _DIGEST) == f"lmsysorg/sglang@{_DIGEST}"
    pinned = engine.model_copy(update={"digest": _DIGEST, "image": "registry:5000/a/b:c"})
    assert image_reference(pinned) == f"registry:5000/a/b@{_DIGEST}"


@pytest.mark.parametrize("found", list(profiles.listing(profiles.places())), ids=lambda found: str(found.name))
def test_every_shipped_launch_passes_the_parser_of_its_release(found: profiles.Found) -> None:
    for launch in _render(found.name):
        check = engines.option_lists("sglang").check(launch.flags, "0.5.23")
        assert (check.status, check.problems) == ("checked", ())


def test_data_holds_the_whole_argv() -> None:
    launch = _render("h100x32")[2]
    data = json.loads(json.dumps(launch_data(launch)))
    assert data["argv"] == list(launch.argv)
    assert data["argv"][-2:] == ["--port", "8000"]
    assert data["node_rank"] == 2


def test_the_script_runs_exactly_the_launch_of_the_named_node(tmp_path: Path) -> None:
    """A stand-in docker writes down what it was given; an odd value proves that quoting holds."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nfor word in docker "$@"; do printf "%s\\0" "$word"; done\n', "utf-8")
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    odd = 'engine.env.ODD="it\'s $HOME `id` \\\\ *"'
    launches = _render("h100x32", odd)
    file = tmp_path / "launch.sh"
    file.write_text(script(launches, ["a note"]), "utf-8")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    for launch in launches:
        done = subprocess.run(["sh", file, launch.node], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split("\0")[:-1] == list(launch.argv)
    unknown = subprocess.run(["sh", file, "gpu-99"], env=environment, capture_output=True, text=True, check=False)
    assert unknown.returncode == 2
    assert "gpu-01 gpu-02 gpu-03 gpu-04" in unknown.stderr
