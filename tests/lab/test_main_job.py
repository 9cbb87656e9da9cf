"""The main job on four real nodes, from bare to bare: one long story, told in order on one lab."""

from collections.abc import Iterator

import pytest

from k3deploy.domain import events as ev
from tests.lab.inventory import allowed_after_teardown, difference
from tests.lab.lab import Lab
from tests.lab.operator import Operator, steps_after_success

pytestmark = pytest.mark.lab

UP = ("up", "--profile", "lab-h100x32")
MIB = 1 << 20
# Every phase of `up` that has steps, in an order in which each can come first in a resumed run.
PHASES_WITH_STEPS = ("storage", "image", "weights-fetch", "launch", "ready", "chat")


# A look at the engine's health is a line in its own log.
ENGINES_OWN_LOG = ("files ~ /ephemeral/docker/containers/*-json.log: *",)
Inventories = dict[str, dict[str, object]]


class Story:
    """The lab and what earlier chapters left for later ones."""

    def __init__(self, lab: Lab) -> None:
        # Progress in S3, as a team would have it; the 18-node test uses the folder beside the nodes file.
        self.operator = Operator(lab, {"K3DEPLOY_STORE": "s3://k3deploy-lab/main-job"})
        self.lab = lab
        self.bare = self.operator.inventories()
        self.told: set[str] = set()

    def changes_since(self, before: Inventories) -> dict[str, list[str]]:
        """What is different on which node; empty when nothing is."""
        after = self.operator.inventories()
        found = {name: difference(before[name], after[name], ENGINES_OWN_LOG) for name in before}
        return {name: lines for name, lines in found.items() if lines}

    def needs(self, *chapters: str) -> None:
        missing = set(chapters) - self.told
        assert not missing, f"an earlier chapter failed: {', '.join(sorted(missing))}"


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    lab = Lab.up("main-job", profile="lab-h100x32", nodes=4)
    try:
        Operator(lab).make_bucket("k3deploy-lab")
        yield Story(lab)
    finally:
        lab.down()


def test_a_dry_run_shows_the_plan_and_changes_nothing(story: Story) -> None:
    said = story.operator.k3deploy(*UP, "--dry-run")
    assert said.code == 0, said
    assert "dry run: the steps marked + would be taken; nothing was changed" in said.stdout
    assert story.changes_since(story.bare) == {}
    story.told.add("dry run")


def test_killed_in_every_phase_and_resumed_it_ends_with_an_answer(story: Story) -> None:
    for phase in PHASES_WITH_STEPS:
        story.operator.killed_in(phase, *UP)
    said = story.operator.k3deploy(*UP, "--output", "json")
    assert said.code == 0, said
    answer = said.json["answers"]["serve-0"]
    assert answer["model"] == "lab/Kimi-K3-mini"
    assert answer["answer"]
    assert answer["reasoning"]
    events = story.operator.events()
    assert steps_after_success(events) == []
    assert sum(isinstance(event, ev.RunStarted) for event in events) == len(PHASES_WITH_STEPS) + 1
    story.told.add("up")


def test_again_and_nothing_is_done(story: Story) -> None:
    story.needs("up")
    before = story.operator.inventories()
    said = story.operator.k3deploy(*UP, "--output", "json")
    assert said.code == 0, said
    assert said.json["has_changed"] is False
    assert set(said.json["units"].values()) == {"unchanged"}
    assert story.changes_since(before) == {}


def test_a_run_with_nothing_to_do_reads_almost_no_weights(story: Story) -> None:
    story.needs("up")
    said = story.operator.k3deploy(*UP)
    assert said.code == 0, said
    verified = [e for e in story.operator.events() if isinstance(e, ev.Verified) and e.phase == "weights-verify"]
    newest = {event.target: event.evidence["read_bytes"] for event in verified}
    assert len(newest) == 4
    assert max(newest.values()) < MIB


def test_status_and_logs_speak_of_the_same_run(story: Story) -> None:
    story.needs("up")
    status = story.operator.k3deploy("status", "--output", "json")
    assert status.code == 0, status
    assert status.json["state"] == "live"
    assert status.json["answers"]["serve-0"]["model"] == "lab/Kimi-K3-mini"
    live = story.operator.k3deploy("status", "--live")
    assert live.code == 0, live
    logs = story.operator.k3deploy("logs", "--node", "gpu-01")
    assert logs.code == 0, logs
    assert "The server is fired up and ready to roll!" in logs.stdout


def test_every_byte_can_be_proved_again_and_a_flipped_one_is_named(story: Story) -> None:
    story.needs("up")
    good = story.operator.k3deploy("verify-shards")
    assert good.code == 0, good
    shard = "model-00007-of-000096.safetensors"
    path = (
        story.lab.node("gpu-03")
        .ssh(f"readlink -f /ephemeral/hf/hub/models--lab--Kimi-K3-mini/snapshots/*/{shard}")
        .stdout.strip()
    )
    flip = (
        f"sudo python3 -c \"f=open('{path}','r+b'); f.seek(-1,2); b=f.read(1); f.seek(-1,2); f.write(bytes([b[0]^1]))\""
    )
    story.lab.node("gpu-03").ssh(flip)
    bad = story.operator.k3deploy("verify-shards")
    assert bad.code == 4, bad
    assert shard in bad.stdout + bad.stderr
    assert "gpu-03" in bad.stdout + bad.stderr
    mended = story.operator.k3deploy("verify-shards", "--repair")
    assert mended.code == 0, mended
    assert f"repaired: gpu-03: {shard}\n" in mended.stdout
    again = story.operator.k3deploy("verify-shards", "--no-cache", "--output", "json")
    assert again.code == 0, again
    assert again.json["headline"] == "COMPLETE: all 4 nodes hold the same 9.60 MB, every byte hashed now"


def test_a_rebooted_node_is_noticed_and_its_replica_is_launched_anew(story: Story) -> None:
    story.needs("up")
    node = story.lab.node("gpu-02")
    node.fault("reboot")
    node.wait()
    said = story.operator.k3deploy(*UP)
    assert said.code == 0, said
    assert "the whole replica starts again" in said.stderr
    # A machine that was away is dialled again before a launch relies on it; image and weights are not touched.
    assert redone(story.operator.events()) == {"reach", "launch", "ready", "chat"}


def test_a_wiped_disk_is_noticed_and_only_its_work_is_done_again(story: Story) -> None:
    story.needs("up")
    node = story.lab.node("gpu-04")
    node.fault("wipe-nvme")
    node.wait()
    said = story.operator.k3deploy(*UP)
    assert said.code == 0, said
    fetched = {
        event.target
        for event in newest_flow(story.operator.events())
        if isinstance(event, ev.Verified) and event.has_changed and event.phase == "weights-fetch"
    }
    assert fetched == {"gpu-04"}


def test_teardown_asks_first(story: Story) -> None:
    story.needs("up")
    before = story.operator.inventories()
    said = story.operator.k3deploy("teardown")
    assert said.code == 5, said
    assert story.changes_since(before) == {}


def test_after_teardown_the_nodes_are_as_they_were(story: Story) -> None:
    story.needs("up")
    said = story.operator.k3deploy("teardown", "--confirm", "--restore", "--purge-weights")
    assert said.code == 0, said
    assert "$64.00/h" in said.stdout
    for name, after in story.operator.inventories().items():
        assert difference(story.bare[name], after, allowed_after_teardown()) == [], name
    status = story.operator.k3deploy("status", "--output", "json")
    assert status.json["state"] == "torn-down"
    again = story.operator.k3deploy("teardown", "--confirm")
    assert again.code in (0, 2), again


def newest_flow(events: list[ev.Event]) -> list[ev.Event]:
    starts = [index for index, event in enumerate(events) if isinstance(event, ev.RunStarted)]
    return events[starts[-1] :]


def redone(events: list[ev.Event]) -> set[str]:
    """The phases in which the newest flow took a step."""
    return {event.phase for event in newest_flow(events) if isinstance(event, ev.StepStarted)}
