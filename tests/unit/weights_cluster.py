"""Two nodes that are folders of this machine, with the run, the phases and the Hub that bring weights onto them."""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import pytest

from k3deploy.adapters.profiles import load_profile
from k3deploy.contracts import Services
from k3deploy.domain.command import Secret
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.names import NodeName, RunId
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.profile.models import Draft, Profile
from k3deploy.domain.run import Keys, RunRecord
from k3deploy.domain.steps import Plan
from k3deploy.domain.topology import assign
from k3deploy.domain.weights import Manifest
from k3deploy.flows.session import Session
from k3deploy.phases.client import ClientPhase
from k3deploy.phases.manifest import ManifestPhase
from k3deploy.phases.weights_fetch import WeightsFetchPhase
from k3deploy.phases.weights_site import WeightsSite
from k3deploy.phases.weights_verify import WeightsVerifyPhase
from k3deploy.runner.graph import AnyPhase, Unit
from k3deploy.runner.marker import Markers
from k3deploy.runner.survey import BatchingSurvey
from k3deploy.runner.unit import Ended, UnitRunner
from k3deploy.testing import FakeHub, FakeWheelhouse, Recorder, services
from tests.lab.checkpoint import DRAFT_REPO, built
from tests.lab.hub import Hub
from tests.unit.engine_world import facts_body
from tests.unit.local_node import LocalNodes, LocalSurvey
from tests.unit.weights_world import Cache, World, manifest_of, serving, world

__all__ = ["world"]

RUN = RunId("lab-20261129-120000-abcd")
NAMES = (NodeName("gpu-01"), NodeName("gpu-02"))
ONE = "model-00001-of-000012.safetensors"
TOKEN = "hf_a-token-that-nobody-may-see"


def _wheel() -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("carried/__init__.py", "")
    return content.getvalue()


@dataclass
class Cluster:
    """Two nodes with an NVMe each: every node's phases see their own folder, as the profile's paths are per node."""

    svc: Services
    nodes: LocalNodes
    hub: FakeHub
    site: WeightsSite
    house: FakeWheelhouse
    world: World
    mounts: Path

    def on(self, node: NodeName) -> "Cluster":
        """The same run with this node's own mount, since the folders of this machine are shared by all nodes."""
        storage = self.site.profile.storage
        mount = self.mounts / node
        profile = self.site.profile.model_copy(
            update={"storage": storage.model_copy(update={"mount": str(mount), "hf_home": str(mount / "hf")})}
        )
        return replace(self, site=replace(self.site, profile=profile))

    def cache(self, node: NodeName) -> Cache:
        return Cache(self.world, self.mounts / node, self.world.manifest)

    @property
    def phases(self) -> tuple[AnyPhase, ...]:
        return (
            ManifestPhase(self.site),
            ClientPhase(self.site, self.house),
            WeightsFetchPhase(self.site, self.house.lock.id),
            WeightsVerifyPhase(self.site),
        )

    def up(self, node: NodeName = NAMES[0], recorder: Recorder | None = None, phases: int = 4) -> list[Ended]:
        """Run the first phases for one node, in order."""
        here = self.on(node)
        runner = UnitRunner(self.svc, Markers(self.svc.store, Keys(RUN)), recorder or Recorder())
        ended = []
        for phase in here.phases[:phases]:
            target = next(target for target in phase.targets() if node in target.nodes)
            ended.append(runner.run(Unit(phase, target)))
        return ended

    def plan(self, phase: AnyPhase, node: NodeName = NAMES[0]) -> Plan:
        target = next(target for target in phase.targets() if node in target.nodes)
        return phase.plan(target, phase.probe(self.svc, target))

    def session(self, node: NodeName = NAMES[0]) -> Session:
        here = self.on(node)
        profile = here.site.profile
        return Session(
            record=RunRecord(RUN, profile.name, {}, 0.0, None),
            profile=profile,
            nodes_file=here.site.nodes_file,
            topology=here.site.topology,
            svc=self.svc,
            survey=BatchingSurvey(self.nodes),
            sink=Recorder(),
            option_lists=OptionLists(),
            wheelhouse=self.house,
        )


def _profile(world: World) -> Profile:
    profile = load_profile("lab-h100x32")
    pool = profile.pools[0]
    model = profile.model.model_copy(
        update={"revision": world.manifest["commit"], "shards": 12, "shard_bytes": 1_186_464}
    )
    replicas = pool.replicas.model_copy(update={"nodes_each": 2})
    return profile.model_copy(
        update={
            "model": model,
            "pools": (pool.model_copy(update={"replicas": replicas}),),
            "timeouts": profile.timeouts,
        }
    )


@pytest.fixture
def served(world: World) -> Iterator[Hub]:
    with serving(world) as hub:
        yield hub


@pytest.fixture
def cluster(world: World, served: Hub, tmp_path: Path) -> Cluster:
    for name in NAMES:
        (tmp_path / name / "k3deploy" / RUN).mkdir(parents=True)
    profile = _profile(world)
    nodes_file = NodesFile(nodes=tuple(NodeEntry(name=name, address=name) for name in NAMES))
    nodes = LocalNodes(*NAMES)
    survey = LocalSurvey(
        nodes, facts=lambda node: facts_body(f"10.0.0.1{node[-1]}", boot_id="b", used_mib=0, processes=[])
    )
    endpoint = f"http://127.0.0.1:{served.server_address[1]}"
    hub = FakeHub(Manifest.from_dict(world.manifest), token=Secret(TOKEN), environment={"HF_ENDPOINT": endpoint})
    site = WeightsSite(profile, assign(profile, nodes_file), nodes_file, RUN)
    house = FakeWheelhouse({"carried-1.0-py3-none-any.whl": _wheel()}, tmp_path)
    svc = services(nodes=nodes, survey=survey, hub=hub)
    return Cluster(svc, nodes, hub, site, house, world, tmp_path)


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def with_draft(cluster: Cluster, served: Hub) -> Cluster:
    """The same run, of a profile that names a draft model."""
    root = cluster.world.root
    body = manifest_of(root / DRAFT_REPO, built(root, DRAFT_REPO).commit) | {"repo": DRAFT_REPO}
    draft = Draft(repo=DRAFT_REPO, revision=body["commit"], shard_bytes=65_656)
    profile = cluster.site.profile
    model = profile.model.model_copy(update={"draft": draft})
    hub = FakeHub(
        Manifest.from_dict(cluster.world.manifest),
        Manifest.from_dict(body),
        environment={"HF_ENDPOINT": f"http://127.0.0.1:{served.server_address[1]}"},
    )
    return replace(
        cluster,
        site=replace(cluster.site, profile=profile.model_copy(update={"model": model})),
        svc=replace(cluster.svc, hub=hub),
    )
