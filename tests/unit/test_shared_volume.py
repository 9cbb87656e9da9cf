"""One volume for all nodes: it is proved to be one before the fetch, filled once, and counted apart from the disks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k3deploy.adapters.profiles import load_profile
from k3deploy.domain.command import Program
from k3deploy.domain.docker_facts import DockerFound
from k3deploy.domain.errors import NodeError
from k3deploy.domain.facts import NodeFacts, PathFound
from k3deploy.domain.names import NodeName, RunId
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.preflight import findings
from k3deploy.domain.profile.models import Profile, Weights
from k3deploy.domain.topology import assign
from k3deploy.phases.one_volume import prove_one_volume
from k3deploy.phases.weights_site import WeightsSite
from k3deploy.testing import FakeNodes, services
from tests.unit.remote_program import run

RUN = RunId("lab-20261130-020000-abcd")
NAMES = tuple(NodeName(f"gpu-0{number}") for number in range(1, 5))
HF_HOME = "/shared/hf"
T = 10**12
BASE = Path(__file__).parents[1] / "golden" / "plan" / "base" / "h100.json"


def _profile() -> Profile:
    profile = load_profile("h100x32")
    return profile.model_copy(
        update={
            "weights": Weights(strategy="shared", volume="/shared"),
            "storage": profile.storage.model_copy(update={"hf_home": HF_HOME}),
        }
    )


def _site() -> WeightsSite:
    nodes_file = NodesFile(nodes=tuple(NodeEntry(name=name, address=name) for name in NAMES))
    profile = _profile()
    return WeightsSite(profile, assign(profile, nodes_file), nodes_file, RUN)


def test_all_nodes_are_one_target_and_the_first_one_works() -> None:
    (target,) = _site().targets()
    assert (target.name, target.nodes) == ("run", NAMES)


def _volumes(nodes: FakeNodes, seen: dict[NodeName, str]) -> dict[str, str]:
    """Each node sees a volume by name; the same name is the same volume."""
    words: dict[str, str] = {}

    def answer(node: NodeName, args: dict[str, Any]) -> dict[str, str | None]:
        volume = seen[node]
        if args["verb"] == "write":
            words[volume] = args["word"]
        elif args["verb"] == "remove":
            words.pop(volume, None)
        return {"word": words.get(volume)}

    def on(node: NodeName) -> Callable[[Program], dict[str, str | None]]:
        return lambda program: answer(node, dict(program.args))

    for name in NAMES:
        nodes[name].on_program("volume_word", on(name))
    return words


def test_nodes_that_see_one_volume_pass_and_nothing_is_left_on_it() -> None:
    nodes = FakeNodes(*NAMES)
    left = _volumes(nodes, dict.fromkeys(NAMES, "one"))
    prove_one_volume(services(nodes=nodes), _site())
    assert left == {}
    assert nodes[NAMES[3]].programs[0].args["path"] == f"{HF_HOME}/.k3deploy-{RUN}"


def test_a_node_with_another_volume_is_named_before_a_byte_is_fetched() -> None:
    nodes = FakeNodes(*NAMES)
    left = _volumes(nodes, {**dict.fromkeys(NAMES, "one"), NAMES[2]: "its own disk"})
    with pytest.raises(NodeError, match="gpu-03: /shared is not the volume that gpu-01 has there"):
        prove_one_volume(services(nodes=nodes), _site())
    assert left == {}


def test_the_word_is_written_read_and_removed(tmp_path: Path) -> None:
    path = tmp_path / ".k3deploy-x"

    def word(verb: str) -> Any:
        return run("volume_word", {"path": str(path), "verb": verb, "word": "abc"}).result["word"]

    assert [word("read"), word("write"), word("read"), word("remove"), word("remove")] == [
        None,
        "abc",
        "abc",
        None,
        None,
    ]
    assert list(tmp_path.iterdir()) == []


def _findings(hf_home: PathFound) -> list[str]:
    """What preflight finds wrong on a node whose own disk has 200 GB free: enough for image and margin (90 GB)."""
    base = json.loads(BASE.read_text(encoding="utf-8"))
    facts = NodeFacts.parse(base["facts"])
    assert facts.storage is not None
    own = PathFound(exists=True, is_on_mount=True, is_mounted=True, free_bytes=200 * 10**9)
    facts = replace(
        facts,
        storage=replace(facts.storage, free_bytes=200 * 10**9),
        paths={"/ephemeral/docker": own, HF_HOME: hf_home},
    )
    found = findings(facts, DockerFound.parse(base["docker"]), None, _profile(), facts.epoch_s)
    return [each.what for each in found if not each.is_warning]


def test_the_weights_count_on_the_volume_and_the_image_on_the_nodes_disk() -> None:
    room = PathFound(exists=True, is_on_mount=True, is_mounted=True, free_bytes=2 * T)
    assert _findings(hf_home=room) == []
    # 1,560,936,091,448 bytes of shards and 50 GB of margin.
    assert _findings(hf_home=replace(room, free_bytes=T)) == ["1000.00 GB free on /shared, 1610.94 GB needed"]


def test_a_volume_that_is_not_mounted_would_fill_the_root_disk() -> None:
    plain = PathFound(exists=True, is_on_mount=True, is_mounted=False, free_bytes=2 * T)
    assert _findings(hf_home=plain) == ["nothing is mounted at /shared"]


def test_a_cache_that_leads_off_the_volume_is_refused() -> None:
    link = PathFound(exists=True, is_on_mount=False, is_mounted=True, free_bytes=2 * T)
    assert _findings(hf_home=link) == [f"{HF_HOME} would not be on /shared"]


def test_a_volume_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    refused = run("volume_word", {"path": str(tmp_path / "none" / "x"), "verb": "write", "word": "abc"})
    assert "let the login user write to the shared volume" in refused.error["fix"]
