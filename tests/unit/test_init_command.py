"""`init` writes a nodes file that reads back as what was typed; `render` uses it without being told."""

import json
from pathlib import Path

import pytest

from k3deploy.adapters.nodes_file import load_nodes, nodes_from_lock, nodes_to_lock
from k3deploy.domain.nodes_file import NodeEntry
from tests.cli_run import k3deploy


@pytest.mark.parametrize(
    ("typed", "entry"),
    [
        ("203.0.113.1", {"address": "203.0.113.1"}),
        ("ubuntu@203.0.113.1", {"address": "203.0.113.1", "user": "ubuntu"}),
        ("203.0.113.1:2222", {"address": "203.0.113.1", "port": 2222}),
        ("head=root@gpu.example:22", {"name": "head", "address": "gpu.example", "user": "root", "port": 22}),
        ("fd00::1", {"address": "fd00::1"}),
        ("[fd00::1]:2222", {"address": "fd00::1", "port": 2222}),
        ("[fd00::1]", {"address": "fd00::1"}),
        ("alias-of-ssh-config", {"address": "alias-of-ssh-config"}),
    ],
)
def test_what_is_typed_for_a_machine(typed: str, entry: dict[str, object], tmp_path: Path) -> None:
    assert k3deploy(["init", typed], tmp_path).exit_code == 0
    wanted = {"name": "node-1", **entry}
    assert load_nodes(tmp_path / "nodes.yaml").nodes == (NodeEntry.model_validate(wanted),)


def test_options_are_for_all_machines(tmp_path: Path) -> None:
    argv = ["init", "a", "root@b", "-u", "ubuntu", "-i", "~/.ssh/key", "-J", "me@bastion:22", "--pool", "serve"]
    said = k3deploy([*argv, "--private-address", "10.0.0.1", "--private-address", "10.0.0.2"], tmp_path)
    assert (said.exit_code, said.stderr) == (0, "")
    nodes = load_nodes(tmp_path / "nodes.yaml").nodes
    assert [node.user for node in nodes] == ["ubuntu", "root"]
    assert [node.private_address for node in nodes] == ["10.0.0.1", "10.0.0.2"]
    assert {(node.key, node.jump, node.pool, node.host_key) for node in nodes} == {
        ("~/.ssh/key", "me@bastion:22", "serve", None)
    }
    assert "k3deploy trust" in said.stdout


def test_force_replaces_and_leaves_no_other_file(tmp_path: Path) -> None:
    k3deploy(["init", "a"], tmp_path)
    assert k3deploy(["init", "b"], tmp_path).exit_code == 1
    assert load_nodes(tmp_path / "nodes.yaml").nodes[0].address == "a"
    assert k3deploy(["init", "b", "--force"], tmp_path).exit_code == 0
    assert load_nodes(tmp_path / "nodes.yaml").nodes[0].address == "b"
    assert [path.name for path in tmp_path.iterdir()] == ["nodes.yaml"]


def test_json(tmp_path: Path) -> None:
    said = k3deploy(["init", "a", "--nodes", "cluster.yaml", "--output", "json"], tmp_path)
    body = json.loads(said.stdout)
    assert body["path"] == "cluster.yaml"
    assert body["nodes"][0]["name"] == "node-1"


def test_render_takes_the_folder_s_nodes_file(tmp_path: Path) -> None:
    k3deploy(["init", "head=203.0.113.1", "--private-address", "10.0.0.219"], tmp_path)
    body = json.loads(k3deploy(["render", "--profile", "b300x8", "--output", "json"], tmp_path).stdout)
    launch = body["launches"][0]
    assert launch["node"] == "head"
    assert launch["argv"][launch["argv"].index("--host") + 1] == "10.0.0.219"
    assert not any("placeholder" in note for note in body["notes"])


def test_the_nodes_lock_is_the_same_file_again(tmp_path: Path) -> None:
    k3deploy(["init", "ubuntu@a:22", "b", "--key", "~/.ssh/ü 🗝"], tmp_path)
    nodes = load_nodes(tmp_path / "nodes.yaml")
    assert nodes_from_lock(json.dumps(nodes_to_lock(nodes)).encode()) == nodes
