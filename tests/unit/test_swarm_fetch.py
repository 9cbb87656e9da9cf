"""Several nodes fetch one repository together: every byte crosses the Hub's link once."""

import json
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

from k3deploy.domain.weights import Manifest
from k3deploy.remote.hub_cache import manifest_digest
from tests.lab.hub import Hub
from tests.unit.remote_program import finish, start
from tests.unit.scripted_share import answer, scripted_share
from tests.unit.swarm_nodes import TOKEN, Node, finished, swarm, wait_for_shards
from tests.unit.weights_world import REPO, World, serving, world

__all__ = ["world"]


@pytest.fixture
def hub(world: World) -> Iterator[Hub]:
    with serving(world) as hub:
        yield hub


def large_files(world: World) -> list[str]:
    return [file["path"] for file in world.manifest["files"] if file["sha256"]]


def test_nodes_and_operator_name_a_manifest_alike(world: World) -> None:
    assert manifest_digest(world.manifest) == Manifest.from_dict(world.manifest).digest
    assert manifest_digest({**world.manifest, "commit": "d" * 40}) != manifest_digest(world.manifest)


def sent_bytes(hub: Hub, path: str) -> int:
    counts = hub.stats.document()["files"].get(path)
    return 0 if counts is None else int(counts["bytes"])


def is_whole(node: Node) -> bool:
    """Everything is there and proved, nothing is left over, and the real client opens it without a network."""
    proof = node.cache.prove()
    assert (proof["proved"], proof["hashed"], proof["faults"]) == (29, 0, [])
    assert node.cache.ask()["partials"] == []
    manifest = node.cache.manifest
    opened = snapshot_download(
        manifest["repo"], revision=manifest["commit"], cache_dir=node.cache.hf_home / "hub", local_files_only=True
    )
    return Path(opened) == node.cache.snapshot


def test_every_byte_of_the_large_files_crosses_the_hubs_link_once(world: World, hub: Hub, tmp_path: Path) -> None:
    with swarm(world, hub, tmp_path, 3) as nodes:
        nodes.start()
        ran = nodes.finish()
        for path in large_files(world):
            assert sent_bytes(hub, path) == world.file(path)["size"], path
        assert all(is_whole(node) for node in nodes.nodes)
        large_bytes = sum(world.file(path)["size"] for path in large_files(world))
        small_bytes = 1258977 - large_bytes
        assert sum(each.result["peer_bytes"] for each in ran.values()) == 2 * large_bytes
        assert sum(each.result["hub_bytes"] for each in ran.values()) == large_bytes + 3 * small_bytes
        last = ran["gpu-02"].progress[-1]
        assert (last["done"], last["files_done"]) == (1258977, 29)
        assert last["hub_bytes"] + last["peer_bytes"] == 1258977
        for node in nodes.nodes:
            assert TOKEN not in ran[node.name].stderr + json.dumps(list(ran[node.name].lines))
            for kept in (node.cache.folder / "scratch").iterdir():
                assert TOKEN not in kept.read_text()


def test_a_store_can_be_the_origin_of_a_swarm(world: World, hub: Hub, tmp_path: Path) -> None:
    with swarm(world, hub, tmp_path, 2) as nodes:
        base = f"http://127.0.0.1:{hub.server_address[1]}/{REPO}/resolve/{world.manifest['commit']}"
        urls = json.dumps({file["path"]: f"{base}/{file['path']}" for file in world.manifest["files"]})
        nodes.start(origin="urls", secrets={"swarm_token": TOKEN, "urls": urls})
        nodes.finish()
        assert hub.stats.document()["methods"].keys() == {"GET"}
        assert {sent_bytes(hub, path) for path in world.shards} == {world.file(world.shards[0])["size"]}
        assert all(is_whole(node) for node in nodes.nodes)


def test_a_new_node_gets_everything_large_from_those_that_have_it(world: World, hub: Hub, tmp_path: Path) -> None:
    with swarm(world, hub, tmp_path, 3) as nodes:
        new = nodes.nodes[2]
        for node in nodes.nodes[:2]:
            node.fill()
            nodes.start_share(node)
        nodes.start([new])
        ran = nodes.finish([new])
        assert {sent_bytes(hub, path) for path in large_files(world)} == {0}
        assert ran[new.name].result["peer_bytes"] == sum(world.file(path)["size"] for path in large_files(world))
        assert is_whole(new)


def test_files_that_nobody_has_hashed_are_proved_and_given_on_not_fetched(
    world: World, hub: Hub, tmp_path: Path
) -> None:
    with swarm(world, hub, tmp_path, 2) as nodes:
        nodes.nodes[0].cache.fill()
        broken = nodes.nodes[0].cache.blob(world.shards[0])
        broken.write_bytes(bytes(broken.stat().st_size))
        nodes.start()
        ran = nodes.finish()
        assert sent_bytes(hub, world.shards[0]) == world.file(world.shards[0])["size"]
        assert {sent_bytes(hub, path) for path in world.shards[1:]} == {0}
        assert ran["gpu-01"].result["fetched"] == 0
        assert broken.with_name(broken.name + ".bad").exists()
        assert is_whole(nodes.nodes[1])
        proof = nodes.nodes[0].cache.prove()
        assert (proof["proved"], proof["hashed"], proof["faults"]) == (29, 16, [])  # 16 small ones, left to the proof


def test_a_half_from_a_peer_is_gone_on_with(world: World, hub: Hub, tmp_path: Path) -> None:
    path = world.shards[0]
    with swarm(world, hub, tmp_path, 2) as nodes:
        giver, taker = nodes.nodes
        giver.fill()
        taker.cache.blobs.mkdir(parents=True)
        half = taker.cache.blob(path).with_name(taker.cache.blob(path).name + ".k3deploy.incomplete")
        half.write_bytes((world.source / path).read_bytes()[:60_000])
        nodes.start_share(giver)
        nodes.start([taker])
        ran = nodes.finish([taker])
        large_bytes = sum(world.file(each)["size"] for each in large_files(world))
        assert ran[taker.name].result["removed_partials"] == 0
        assert ran[taker.name].result["peer_bytes"] == large_bytes - 60_000
        assert is_whole(taker)


def test_a_peer_that_gives_wrong_bytes_is_believed_in_nothing_but_its_other_files(
    world: World, hub: Hub, tmp_path: Path
) -> None:
    path = world.shards[0]
    with swarm(world, hub, tmp_path, 2) as nodes:
        liar, taker = nodes.nodes
        damaged = liar.cache.blob(path)
        liar.fill([each for each in large_files(world) if each != path])
        liar.fill_wrongly(path)
        nodes.start_share(liar)
        nodes.start([taker])
        ran = nodes.finish([taker])
        assert sent_bytes(hub, path) == world.file(path)["size"]
        assert {sent_bytes(hub, each) for each in world.shards[1:]} == {0}
        assert damaged.read_bytes() != taker.cache.blob(path).read_bytes()
        assert ran[taker.name].result["quarantined"] == []
        assert is_whole(taker)


def test_with_few_places_at_each_share_all_get_everything_all_the_same(world: World, hub: Hub, tmp_path: Path) -> None:
    with swarm(world, hub, tmp_path, 4) as nodes:
        for node in nodes.nodes:
            nodes.start_share(node, slots=1)
        for node in nodes.nodes:
            nodes.start_fetch(node)
        nodes.finish()
        assert {sent_bytes(hub, path) for path in world.shards} == {world.file(world.shards[0])["size"]}
        assert all(is_whole(node) for node in nodes.nodes)


def test_a_node_that_nobody_answers_fetches_everything_by_itself(world: World, hub: Hub, tmp_path: Path) -> None:
    with swarm(world, hub, tmp_path, 2) as nodes:
        nodes.start_fetch(nodes.nodes[1])
        ran = nodes.finish([nodes.nodes[1]])
        assert (ran["gpu-02"].result["hub_bytes"], ran["gpu-02"].result["peer_bytes"]) == (1258977, 0)
        assert is_whole(nodes.nodes[1])


@pytest.mark.parametrize("number", [0, 2], ids=["the-tracker", "another"])
def test_when_a_node_dies_only_what_it_alone_had_is_fetched_again(
    world: World, hub: Hub, tmp_path: Path, number: int
) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 150_000, "match": "*.safetensors"}]})
    with swarm(world, hub, tmp_path, 3) as nodes:
        dead = nodes.nodes[number]
        living = [node for node in nodes.nodes if node is not dead]
        nodes.start()
        wait_for_shards(dead, 3)
        dead.kill()
        held_by_others = finished(living[0].cache) | finished(living[1].cache)
        lost = finished(dead.cache) - held_by_others
        open_leases = {
            world.manifest["files"][int(index)]["path"]
            for index in json.loads((dead.cache.folder / "scratch" / "leases.json").read_text())
        }
        nodes.finish(living)
        again = {path for path in world.shards if sent_bytes(hub, path) > world.file(path)["size"]}
        assert again <= lost | open_leases
        assert all(is_whole(node) for node in living)


def test_a_share_that_dies_and_comes_back_keeps_nobody_from_getting_everything(
    world: World, hub: Hub, tmp_path: Path
) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 150_000, "match": "*.safetensors"}]})
    with swarm(world, hub, tmp_path, 3) as nodes:
        nodes.start()
        wait_for_shards(nodes.nodes[0], 3)
        nodes.nodes[0].end_share()
        wait_for_shards(nodes.nodes[1], 6)
        nodes.start_share(nodes.nodes[0])
        nodes.finish()
        assert all(is_whole(node) for node in nodes.nodes)


def test_when_the_hub_dies_half_way_peers_get_all_that_exists_and_then_it_is_said(
    world: World, hub: Hub, tmp_path: Path
) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 150_000, "match": "*.safetensors"}]})
    with swarm(world, hub, tmp_path, 3, wait_base_s=0.02) as nodes:
        nodes.start()
        wait_for_shards(nodes.nodes[1], 4)
        hub.faults.replace({"rules": [{"kind": "status", "code": 503, "method": "GET"}]})
        ran = nodes.finish()
        have = [finished(node.cache) for node in nodes.nodes]
        assert have[0] == have[1] == have[2]
        assert 4 <= len(have[0]) < 12
        for node in nodes.nodes:
            error = ran[node.name].error
            assert "cannot fetch" in error["what"]
            assert "503" in error["why"]
            assert error["context"]["kind"] == "hub"
            assert node.cache.ask()["partials"] == []
            assert {each["kind"] for each in node.cache.ask()["missing"]} == {"missing"}
        hub.faults.replace({})
        hub.stats.reset()
        for node in nodes.nodes:
            nodes.start_fetch(node)
        nodes.finish()
        assert {sent_bytes(hub, path) for path in have[0]} == {0}
        assert all(is_whole(node) for node in nodes.nodes)


def test_killed_and_started_again_a_node_fetches_nothing_twice(world: World, hub: Hub, tmp_path: Path) -> None:
    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 150_000, "match": "*.safetensors"}]})
    with swarm(world, hub, tmp_path, 2) as nodes:
        node = nodes.nodes[1]
        nodes.start()
        wait_for_shards(node, 4)
        node.end_fetch()
        had = finished(node.cache)
        hub.faults.replace({})
        nodes.start_fetch(node)
        ran = nodes.finish()
        assert ran[node.name].result["kept"] >= len(had)
        for path in had:
            assert sent_bytes(hub, path) == world.file(path)["size"], path
        assert all(is_whole(each) for each in nodes.nodes)


def test_a_revoked_lease_is_stopped_and_the_file_taken_from_its_holder(world: World, hub: Hub, tmp_path: Path) -> None:
    path = world.shards[0]
    index = [file["path"] for file in world.manifest["files"]].index(path)
    large = {str(each): ["gpu-01"] for each, file in enumerate(world.manifest["files"]) if file["sha256"]}
    blobs = {
        file["sha256"]: (world.source / file["path"]).read_bytes() for file in world.manifest["files"] if file["sha256"]
    }
    said = {"granted": False, "revoked": False}

    def tracker(report: dict[str, Any]) -> dict[str, Any]:
        others = {each: names for each, names in large.items() if int(each) not in (*report["held"], index)}
        if report["room"] and not said["granted"]:
            said["granted"] = True
            return answer(leases=[index], holders=others)
        if str(index) in report["leases"] and path in hub.stats.document()["files"]:
            said["revoked"] = True
            return answer(revoked=[index], holders=large)
        return answer(holders=large if said["revoked"] and index not in report["held"] else others)

    hub.faults.replace({"rules": [{"kind": "slow", "bytes_per_s": 4_000, "match": path}]})
    with (
        swarm(world, hub, tmp_path, 2) as nodes,
        scripted_share(tracker, address=nodes.nodes[0].address, port=nodes.ports[0], blobs=blobs),
    ):
        nodes.start_fetch(nodes.nodes[1])
        ran = nodes.finish([nodes.nodes[1]])["gpu-02"]
        assert said["revoked"]
        assert ran.result["retries"] == 0
        assert 0 <= sent_bytes(hub, path) < world.file(path)["size"]
        assert is_whole(nodes.nodes[1])


def test_what_no_holder_gives_is_asked_of_the_tracker_and_comes_from_the_hub(
    world: World, hub: Hub, tmp_path: Path
) -> None:
    numbers = [number for number, file in enumerate(world.manifest["files"]) if file["sha256"]]

    def tracker(report: dict[str, Any]) -> dict[str, Any]:
        lacking = [number for number in numbers if number not in report["held"]]
        mine = [number for number in report["cut_off"] if str(number) not in report["leases"]]
        return answer(leases=mine[: report["room"]], holders={str(number): ["gpu-01"] for number in lacking})

    with (
        swarm(world, hub, tmp_path, 2) as nodes,
        scripted_share(tracker, address=nodes.nodes[0].address, port=nodes.ports[0]) as share,
    ):
        nodes.start_fetch(nodes.nodes[1])
        ran = nodes.finish([nodes.nodes[1]])["gpu-02"]
        assert (ran.result["hub_bytes"], ran.result["peer_bytes"]) == (1258977, 0)
        assert share.reports[0]["cut_off"] == []
        assert is_whole(nodes.nodes[1])


def test_a_disk_that_fills_up_ends_the_fetch_and_nothing_wrong_is_left(world: World, hub: Hub, tmp_path: Path) -> None:
    # A limit on the size of a file stands for a full disk: a write beyond 90 kB fails, in receivers too.
    def lower() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))

    with swarm(world, hub, tmp_path, 2) as nodes:
        giver, taker = nodes.nodes
        giver.fill()
        nodes.start_share(giver)
        nodes.start_share(taker)
        error = finish(start("fetch", nodes.fetch_args(taker), preexec_fn=lower)).error
        assert error["context"]["kind"] == "disk"
        assert "File too large" in error["why"]
        assert {each["kind"] for each in taker.cache.ask()["missing"]} == {"missing"}
        nodes.start_fetch(taker)
        nodes.finish([taker])
        assert is_whole(taker)


def test_a_node_that_is_not_in_the_list_says_so(world: World, hub: Hub, tmp_path: Path) -> None:
    with swarm(world, hub, tmp_path, 2) as nodes:
        node = nodes.nodes[0]
        node.name = "gpu-99"
        nodes.start_fetch(node)
        error = nodes.finish([node])["gpu-99"].error
        assert error["what"] == "this node is not in the list of those that share weights"
        assert "names gpu-01, gpu-02" in error["why"]
