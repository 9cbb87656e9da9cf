"""From an empty disk to proved weights through the real phases, programs, client and Hub server, on two local nodes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k3deploy.domain import events as ev
from k3deploy.domain.errors import HubError, Interrupted, K3Error, NodeError, ProfileError
from k3deploy.domain.names import NodeName
from k3deploy.domain.run import Keys
from k3deploy.phases.engine_site import EngineSite
from k3deploy.phases.manifest import ManifestPhase, pinned
from k3deploy.phases.weights_warm import WeightsWarmPhase
from k3deploy.runner.graph import Unit
from k3deploy.runner.marker import Markers
from k3deploy.runner.unit import Ended, UnitRunner
from k3deploy.testing import FakeCancel, Recorder
from tests.lab.checkpoint import DRAFT_REPO, built
from tests.lab.hub import Hub
from tests.unit.engine_world import facts_body
from tests.unit.local_node import LocalSurvey
from tests.unit.weights_cluster import NAMES, ONE, RUN, TOKEN, Cluster, cluster, flip_bit, served, with_draft
from tests.unit.weights_world import drop, world

__all__ = ["cluster", "served", "world"]

# What a fetch brings is proved while it comes, so the proof finds nothing to do.
FROM_NOTHING = [Ended.CHANGED, Ended.CHANGED, Ended.CHANGED, Ended.UNCHANGED]


def test_from_nothing_to_proved_weights_and_then_nothing_to_do(cluster: Cluster, served: Hub) -> None:
    first = Recorder()
    assert cluster.up(NAMES[0], first) == FROM_NOTHING
    assert cluster.up(NAMES[1]) == [Ended.UNCHANGED, *FROM_NOTHING[1:]]
    served.stats.reset()
    for name in NAMES:
        assert cluster.up(name) == [Ended.UNCHANGED] * 4
    assert served.stats.document()["requests"] == 0
    assert cluster.hub.asked == [(cluster.world.manifest["repo"], cluster.world.manifest["commit"])]  # once per run
    # Every node holds the same commit, says so, and its name means it.
    evidence = [cluster.on(name).phases[3].verify(cluster.svc, _target(cluster, name)).evidence for name in NAMES]
    for key in ("commit", "manifest", "files", "bytes"):
        assert evidence[0][key] == evidence[1][key]
    assert evidence[0]["commit"] == cluster.world.manifest["commit"]
    assert (evidence[0]["files"], evidence[0]["bytes"]) == (29, 1258977)
    for name in NAMES:
        assert (cluster.cache(name).repository / "refs" / "main").read_text() == cluster.world.manifest["commit"]


def test_a_draft_model_is_fetched_and_proved_with_the_model(cluster: Cluster, served: Hub) -> None:
    both = with_draft(cluster, served)
    assert both.up() == FROM_NOTHING
    assert both.up() == [Ended.UNCHANGED] * 4
    verify = both.on(NAMES[0]).phases[3]
    evidence = verify.verify(both.svc, _target(both, NAMES[0])).evidence
    # 29 files of the model and 4 of the draft, as tests/lab/checkpoint.json has them.
    assert (evidence["files"], evidence["bytes"]) == (29 + 4, 1_258_977 + 65_846)
    folder = both.mounts / NAMES[0] / "hf" / "hub" / "models--lab--Kimi-K3-DSpark-mini"
    assert (folder / "refs" / "main").read_text() == built(cluster.world.root, DRAFT_REPO).commit


def _target(cluster: Cluster, node: NodeName) -> Any:
    return next(target for target in cluster.site.targets() if node in target.nodes)


def test_nothing_weight_sized_is_sent_and_the_token_only_as_a_secret(cluster: Cluster) -> None:
    recorder = Recorder()
    cluster.up(NAMES[0], recorder)
    node = cluster.nodes[NAMES[0]]
    assert [Path(put.path).name for put in node.puts] == [f"client-{cluster.house.lock.id}.zip"]
    assert sum(len(put.data) for put in node.puts) < 10_000
    for program in node.programs:
        assert TOKEN not in repr(program)
        assert len(json.dumps(dict(program.args))) < 60_000
    assert [p.entry for p in node.programs if "hf_token" in p.secrets] == ["job_start"]
    assert TOKEN not in "".join(event.to_json(0) for event in recorder.events)
    for path in (cluster.mounts / NAMES[0] / "k3deploy").rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()


def test_plans_say_what_will_be_done(cluster: Cluster) -> None:
    here = cluster.on(NAMES[0])
    manifest, client, fetch, verify = here.phases
    (step,) = cluster.plan(manifest).steps
    assert step.title == f"settle on lab/Kimi-K3-mini at {cluster.world.manifest['commit'][:12]}"
    (step,) = cluster.plan(client).steps
    assert step.title.startswith("send huggingface_hub")
    step.action.perform(cluster.svc, lambda *_a, **_k: None)
    assert cluster.plan(client).is_noop
    cluster.plan(manifest).steps[0].action.perform(cluster.svc, lambda *_a, **_k: None)
    (step,) = cluster.plan(fetch).steps
    assert step.title == "fetch 29 of 29 files (1.26 MB)"
    cluster.cache(NAMES[0]).fill()
    assert cluster.plan(fetch).reason == "all 29 files are there"
    assert [step.title for step in cluster.plan(verify).steps] == [
        "hash 29 of 29 files",
        f"let lab/Kimi-K3-mini mean {cluster.world.manifest['commit'][:12]} on this node",
    ]
    (cluster.cache(NAMES[0]).blobs / f"{'a' * 64}.00000000.incomplete").write_bytes(b"x" * 5000)
    assert cluster.plan(fetch).steps[0].title == "remove 1 leftovers of killed downloads (5.00 kB)"


@pytest.mark.parametrize(("available_bytes", "keep_cached"), [(96_001_186_464, True), (96_001_186_463, False)])
def test_what_is_hashed_stays_in_memory_where_it_fits(
    cluster: Cluster, available_bytes: int, keep_cached: bool
) -> None:
    """1,186,464 bytes of weights beside an engine of 8 ranks, for which 12 GB each are left."""
    cluster.up(phases=1)
    cluster.cache(NAMES[0]).fill()
    facts = {
        **facts_body("10.0.0.11", boot_id="b", used_mib=0, processes=[]),
        "memory_available_bytes": available_bytes,
    }
    svc = replace(cluster.svc, survey=LocalSurvey(cluster.nodes, facts=lambda _node: facts))
    verify = cluster.on(NAMES[0]).phases[3]
    steps = replace(cluster, svc=svc).plan(verify).steps
    assert steps[0].action.keep_cached is keep_cached


def test_what_the_kernel_forgot_is_read_again_before_a_launch(cluster: Cluster) -> None:
    cluster.up(phases=1)
    cache, here = cluster.cache(NAMES[0]).fill(), cluster.on(NAMES[0]).site
    for blob in cache.blobs.iterdir():
        drop(blob)
    nothing_runs = {"daemon": "absent", "why": "", "container": None, "launch": None, "recorded": None}
    survey = LocalSurvey(
        cluster.nodes,
        facts=lambda _node: facts_body("10.0.0.11", boot_id="b", used_mib=0, processes=[]),
        container=lambda _node: {**nothing_runs, "other_claims": [], "listeners": []},
    )
    phase = WeightsWarmPhase(EngineSite(here.profile, here.topology, here.nodes_file, RUN))
    runner = UnitRunner(
        replace(cluster.svc, survey=survey), Markers(cluster.svc.store, Keys(RUN)), recorder := Recorder()
    )
    unit = Unit(phase, phase.targets()[0])
    assert runner.run(unit) is Ended.CHANGED
    assert [event.step for event in recorder.of(ev.StepStarted)] == ["read about 1.3 of 1.3 MB into memory"]
    assert recorder.of(ev.Verified)[0].evidence["cached_bytes"] == 1258977
    assert runner.run(unit) is Ended.UNCHANGED


def test_a_file_that_lands_wrong_is_fetched_again_before_anybody_believes_it(cluster: Cluster, served: Hub) -> None:
    served.faults.replace({"rules": [{"kind": "corrupt", "match": ONE, "times": 1}]})
    assert cluster.up() == FROM_NOTHING
    assert served.stats.document()["files"][ONE]["requests"] == 4, "HEAD and GET, twice"


def test_a_file_that_is_wrong_each_time_is_named_with_what_to_suspect(cluster: Cluster, served: Hub) -> None:
    served.faults.replace({"rules": [{"kind": "corrupt", "match": ONE}]})
    with pytest.raises(HubError) as caught:
        cluster.up()
    assert caught.value.what == f"gpu-01: cannot fetch {ONE} (3 tries)"
    assert str(cluster.world.file(ONE)["sha256"]) in caught.value.why
    assert caught.value.fix.startswith("suspect the node's memory or disk")


def test_a_file_that_goes_bad_after_the_proof_is_hashed_and_fetched_by_itself(cluster: Cluster, served: Hub) -> None:
    cluster.up()
    served.stats.reset()
    flip_bit(cluster.cache(NAMES[0]).blob(ONE))
    with pytest.raises(NodeError, match="1 file of the weights is wrong"):
        cluster.up()
    assert cluster.up()[2:] == FROM_NOTHING[2:]
    assert list(served.stats.document()["files"]) == [ONE]


def test_what_the_hub_refuses_is_an_error_of_the_hub(cluster: Cluster, served: Hub) -> None:
    served.faults.replace({"rules": [{"kind": "status", "code": 403, "match": "config.json"}]})
    with pytest.raises(HubError, match=r"gpu-01: cannot fetch config\.json") as caught:
        cluster.up()
    assert "403" in caught.value.why
    assert TOKEN not in str(caught.value.as_dict())


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [("shards", 96, 12), ("shard_bytes", 9_491_744, 1_186_464)],
)
def test_a_manifest_that_is_not_the_profiles_stops_before_any_node(
    cluster: Cluster, field: str, value: int, found: int
) -> None:
    profile = cluster.site.profile
    wrong = profile.model_copy(update={"model": profile.model.model_copy(update={field: value})})
    phase = ManifestPhase(replace(cluster.site, profile=wrong))
    with pytest.raises(ProfileError, match=f"is not what the profile says: model.{field}") as caught:
        cluster.plan(phase)
    assert (caught.value.context["found"], caught.value.context["wanted"]) == (found, value)
    assert pinned(cluster.svc) == ()


def test_a_run_keeps_its_commit_when_the_profile_is_edited(cluster: Cluster) -> None:
    cluster.up(phases=1)
    profile = cluster.site.profile
    edited = profile.model_copy(update={"model": profile.model.model_copy(update={"revision": "e" * 40})})
    phase = ManifestPhase(replace(cluster.site, profile=edited))
    with pytest.raises(ProfileError, match="this run holds another model than the profile names"):
        phase.verify(cluster.svc, phase.targets()[0])


def test_a_hub_that_cannot_be_asked_stops_the_manifest_alone(cluster: Cluster) -> None:
    cluster.hub.error = HubError(what="the hub is away", fix="wait")
    with pytest.raises(HubError):
        cluster.plan(ManifestPhase(cluster.site))
    # Without a list there is no question about weights, so the survey of a fresh run costs nothing more.
    fetch = cluster.on(NAMES[0]).phases[2]
    asked = fetch.questions(cluster.svc, _target(cluster, NAMES[0]))
    assert [question.section for question in asked[NAMES[0]]] == ["facts"]


def test_an_architecture_without_wheels_is_said(cluster: Cluster) -> None:
    phase = cluster.on(NAMES[0]).phases[1]
    target = _target(cluster, NAMES[0])
    seen = replace(phase.probe(cluster.svc, target), architecture="riscv64")
    with pytest.raises(NodeError, match="no Hub client for riscv64"):
        phase.plan(target, seen)


def test_a_client_that_lost_a_file_is_sent_anew(cluster: Cluster) -> None:
    cluster.up(phases=2)
    folder = Path(cluster.on(NAMES[0]).site.folder.client(cluster.house.lock.id))
    (folder / "carried" / "__init__.py").unlink()
    assert cluster.up(phases=2)[1] is Ended.CHANGED
    assert (folder / "carried" / "__init__.py").exists()


def test_ctrl_c_leaves_the_job_running_and_the_next_run_finds_it(cluster: Cluster, served: Hub) -> None:
    served.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 60_000}]})
    interrupted = replace(cluster, svc=replace(cluster.svc, cancel=_CancelledOnceFetching(cluster)))
    with pytest.raises(Interrupted, match="goes on there"):
        interrupted.up()
    started = [p for p in cluster.nodes[NAMES[0]].programs if p.entry == "job_start"]
    served.faults.replace({})
    assert cluster.up()[2] is Ended.CHANGED
    assert len(started) == 1
    # 29 files, asked for with HEAD and GET each: the second run did not begin again.
    assert served.stats.document()["requests"] == 2 * 29


class _CancelledOnceFetching(FakeCancel):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    @property
    def is_set(self) -> bool:
        return any(program.entry == "job_watch" for program in self._cluster.nodes[NAMES[0]].programs)


def test_errors_of_these_phases_are_all_explained(cluster: Cluster) -> None:
    with pytest.raises(K3Error) as caught:
        cluster.on(NAMES[0]).phases[2].verify(cluster.svc, _target(cluster, NAMES[0]))
    assert caught.value.what == "this run has no list of the model's files yet"
    assert caught.value.fix
