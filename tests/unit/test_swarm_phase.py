"""Who is told what before nodes give weights to each other: addresses, the token, and who has to be woken."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from k3deploy.adapters.profiles import load_profile
from k3deploy.contracts import Services
from k3deploy.domain.command import Program, Secret
from k3deploy.domain.errors import NodeUnreachable
from k3deploy.domain.names import Commit, NodeName, RunId, Sha256
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.profile.models import Draft
from k3deploy.domain.topology import assign
from k3deploy.domain.weights import Manifest, ManifestFile
from k3deploy.phases.detached import DetachedJob
from k3deploy.phases.manifest import MANIFEST_PIN
from k3deploy.phases.swarm import Membership, Swarm
from k3deploy.phases.weights_site import WeightsSite
from k3deploy.testing import FakeNodes, FakeSurvey, services
from tests.unit.engine_world import facts_body

RUN = RunId("lab-20261130-020000-abcd")
NAMES = tuple(NodeName(f"gpu-0{number}") for number in range(1, 5))
ADDRESSES = {name: f"10.0.0.{number}" for number, name in enumerate(NAMES, 11)}
SHARD = ManifestFile("model.safetensors", 8, Sha256("b" * 64), "c" * 40)
MODEL = Manifest("moonshotai/Kimi-K3", Commit("a" * 40), (SHARD,))
DRAFT = Manifest("RadixArk/Kimi-K3-DSpark", Commit("d" * 40), (replace(SHARD, sha256=Sha256("e" * 64)),))
LOST = NodeUnreachable(what="gpu-04 does not answer", fix="wait")


@dataclass
class World:
    svc: Services
    nodes: FakeNodes
    survey: FakeSurvey
    swarm: Swarm

    def join(self, name: NodeName, manifest: Manifest) -> Membership:
        member = self.swarm.member(self.svc, name, manifest)
        fetch = DetachedJob(
            node=name,
            id=f"{RUN}-weights-fetch",
            folder="/jobs/weights-fetch",
            entry="fetch",
            args={},
            silent_s=1.0,
            timeout_s=1.0,
            secrets={"swarm_token": member.token, "hf_token": Secret("hf_x")},
        )
        self.swarm.begin(self.svc, manifest, fetch)
        return member

    def joined(self, name: NodeName) -> list[Program]:
        return [program for program in self.nodes[name].programs if program.entry == "swarm_join"]


def weights(proved: int) -> dict[str, Any]:
    return {
        "files": 1,
        "bytes": 8,
        "missing": [],
        "missing_bytes": 0,
        "proved": proved,
        "is_structure_proved": False,
        "main_commit": None,
        "other_commits": [],
        "read_bytes": 0,
        "partials": [],
        "quarantined": [],
    }


@pytest.fixture
def world() -> World:
    profile = load_profile("h100x32")
    draft = Draft(repo=DRAFT.repo, revision=DRAFT.commit, shard_bytes=4)
    profile = profile.model_copy(update={"model": profile.model.model_copy(update={"draft": draft})})
    nodes_file = NodesFile(nodes=tuple(NodeEntry(name=name, address=name) for name in NAMES))
    nodes, survey = FakeNodes(*NAMES), FakeSurvey()
    svc = services(nodes=nodes, survey=survey)
    svc.pins.settle(MANIFEST_PIN, {"manifests": [MODEL.as_dict(), DRAFT.as_dict()]})
    for name in NAMES:
        nodes[name].on_program("swarm_peers", {"token": None})
        nodes[name].on_program("swarm_join", {"jobs": []})
        survey.on("facts", facts_body(ADDRESSES[name], boot_id="1", used_mib=0, processes=[]), node=name)
        survey.on("weights", weights(proved=0), node=name)
        survey.on("swarm", {"has_token": False}, node=name)
    return World(svc, nodes, survey, Swarm(WeightsSite(profile, assign(profile, nodes_file), nodes_file, RUN)))


def test_a_node_learns_all_addresses_and_starts_to_share(world: World) -> None:
    member = world.join(NAMES[1], MODEL)
    (program,) = world.joined(NAMES[1])
    assert program.args["peers"] == {"run": RUN, "nodes": {str(name): ADDRESSES[name] for name in NAMES}}
    fetch, job = program.args["jobs"]
    assert fetch["secrets"] == ["swarm_token", "hf_token"]
    assert job["id"] == f"{RUN}-weights-share"
    assert (job["args"]["host"], job["args"]["ports"]) == ("10.0.0.12", [20400, 20401, 20402, 20403])
    assert job["args"]["fetch_folder"] == f"/ephemeral/k3deploy/{RUN}/jobs/weights-fetch"
    assert member.args == {
        "run": RUN,
        "node": "gpu-02",
        "peers_file": f"/ephemeral/k3deploy/{RUN}/swarm/peers.json",
        "ports": [20400, 20401, 20402, 20403],
    }


def test_all_nodes_get_the_same_new_token_and_it_is_no_argument(world: World) -> None:
    tokens = {world.join(name, MODEL).token.reveal() for name in NAMES}
    (token,) = tokens
    assert len(token) >= 32
    for name in NAMES:
        (program,) = world.joined(name)
        assert program.secrets == {"swarm_token": Secret(token), "hf_token": Secret("hf_x")}
        assert token not in str(program.args)


def test_a_token_that_a_node_was_given_before_stays(world: World) -> None:
    world.survey.on("swarm", {"has_token": True}, node=NAMES[3])
    world.nodes[NAMES[3]].on_program("swarm_peers", {"token": "from-another-laptop"})
    assert world.join(NAMES[0], MODEL).token.reveal() == "from-another-laptop"


def test_another_node_is_asked_for_the_token_when_the_first_one_is_lost(world: World) -> None:
    for name in NAMES[1:]:
        world.survey.on("swarm", {"has_token": True}, node=name)
    world.nodes[NAMES[1]].on_program("swarm_peers", LOST)
    world.nodes[NAMES[2]].on_program("swarm_peers", {"token": "by-which-they-share"})
    assert world.join(NAMES[0], MODEL).token.reveal() == "by-which-they-share"


def test_a_start_that_did_not_go_through_is_made_again_with_its_share(world: World) -> None:
    """The runner tries a node again that was lost for a moment."""
    world.nodes[NAMES[0]].on_program("swarm_join", LOST)
    with pytest.raises(NodeUnreachable):
        world.join(NAMES[0], MODEL)
    world.nodes[NAMES[0]].on_program("swarm_join", {"jobs": []})
    world.join(NAMES[0], MODEL)
    again = world.joined(NAMES[0])[-1]
    assert [job["entry"] for job in again.args["jobs"]] == ["fetch", "share"]


def test_the_draft_has_ports_and_jobs_of_its_own(world: World) -> None:
    member = world.join(NAMES[0], DRAFT)
    assert member.args["ports"] == [20404, 20405, 20406, 20407]
    (program,) = world.joined(NAMES[0])
    assert program.args["jobs"][1]["dir"] == f"/ephemeral/k3deploy/{RUN}/jobs/weights-share-draft"
    assert program.args["jobs"][1]["args"]["fetch_folder"].endswith("/jobs/weights-fetch-draft")


def test_a_node_that_does_not_answer_is_left_out_until_its_own_turn(world: World) -> None:
    world.survey.on("facts", LOST, node=NAMES[3])
    world.join(NAMES[0], MODEL)
    assert world.joined(NAMES[0])[0].args["peers"]["nodes"] == {**ADDRESSES, NAMES[3]: None}
    world.survey.on("facts", facts_body(ADDRESSES[NAMES[3]], boot_id="1", used_mib=0, processes=[]), node=NAMES[3])
    world.join(NAMES[3], MODEL)
    assert world.joined(NAMES[3])[0].args["peers"]["nodes"] == ADDRESSES
    told = [program for program in world.nodes[NAMES[0]].programs if program.entry == "swarm_peers"][-1]
    assert told.args["peers"]["nodes"] == ADDRESSES, "the one that was first knows it too"


def test_only_those_that_hold_proved_files_are_woken_and_once(world: World) -> None:
    world.survey.on("weights", weights(proved=1), node=NAMES[2])
    world.survey.on("weights", LOST, node=NAMES[3])
    world.join(NAMES[0], MODEL)
    world.swarm.wake_holders(world.svc, MODEL)
    world.swarm.wake_holders(world.svc, MODEL)
    assert [len(world.joined(name)) for name in NAMES] == [1, 0, 1, 0]


def test_a_late_node_has_those_started_again_whose_share_may_be_over(world: World) -> None:
    world.survey.on("facts", LOST, node=NAMES[3])
    for name in NAMES[:3]:
        assert not world.join(name, MODEL).is_late
        world.survey.on("weights", weights(proved=1), node=name)
    world.survey.on("facts", facts_body(ADDRESSES[NAMES[3]], boot_id="1", used_mib=0, processes=[]), node=NAMES[3])
    member = world.join(NAMES[3], MODEL)
    assert member.is_late
    world.swarm.wake_holders(world.svc, MODEL, even_again=True)
    assert [len(world.joined(name)) for name in NAMES] == [2, 2, 2, 1]


@pytest.mark.parametrize(("strategy", "nodes", "is_swarm"), [("auto", 4, True), ("swarm", 4, True), ("hub", 4, False)])
def test_which_strategies_are_a_swarm(world: World, strategy: str, nodes: int, is_swarm: bool) -> None:
    site = world.swarm.site
    weights = site.profile.weights.model_copy(update={"strategy": strategy})
    site = replace(site, profile=site.profile.model_copy(update={"weights": weights}))
    assert len(site.topology.nodes) == nodes
    assert site.is_swarm is is_swarm


def test_one_node_alone_is_no_swarm() -> None:
    profile = load_profile("b300x8")
    nodes_file = NodesFile(nodes=(NodeEntry(name=NAMES[0], address="x"),))
    assert not WeightsSite(profile, assign(profile, nodes_file), nodes_file, RUN).is_swarm
