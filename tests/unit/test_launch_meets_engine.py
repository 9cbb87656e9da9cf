"""Our launches, given to the lab's stand-in engine: its parser is built from the releases, not from our code."""

from pathlib import Path

import pytest

from k3deploy.adapters import profiles
from k3deploy.domain.launch.render import engine_key_file, render
from tests.golden.made import PROFILES, cluster
from tests.lab.engine import options


@pytest.mark.parametrize("version", ["0.5.18", "0.5.20", "0.5.21", "0.5.23"])
@pytest.mark.parametrize("name", PROFILES)
def test_every_allowed_release_takes_the_launch(name: str, version: str) -> None:
    profile = profiles.load_profile(name)
    topology, addresses = cluster(profile)
    for launch in render(profile, topology, addresses, image="i"):
        parsed = options.parse(launch.engine_argv[2:], version)
        assert parsed.tp_size == profile.pools[0].replicas.parallel.tensor
        assert parsed.node_rank == launch.node_rank
        assert parsed.host == addresses[launch.node].private_address


def test_the_key_reaches_the_engine_through_its_config_file(tmp_path: Path) -> None:
    profile = profiles.load("b300x8", ["network.api=public"]).profile
    topology, addresses = cluster(profile)
    launch = render(profile, topology, addresses, image="i", key_file="/k3/engine.yaml")[0]
    file = tmp_path / "engine.yaml"
    file.write_bytes(engine_key_file("k3-secret_1"))
    argv = [str(file) if word == "/etc/k3deploy/engine.yaml" else word for word in launch.engine_argv[2:]]
    assert options.parse(argv, "0.5.23").api_key == "k3-secret_1"
    assert not any("k3-secret_1" in word for word in launch.argv)
