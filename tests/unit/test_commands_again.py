"""A command that is proposed means the same machines and store as the one that was typed."""

from pathlib import Path

import pytest

from k3deploy.adapters.clock import SystemClock
from k3deploy.cli.options import options_again
from k3deploy.cli.wiring import Place, begin
from k3deploy.domain.errors import ProfileError
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.flows.runs import Runs
from k3deploy.testing import MemoryStore


@pytest.mark.parametrize(
    ("nodes", "store", "expected"),
    [
        ("nodes.yaml", None, ""),
        ("my lab/nodes.yaml", None, " --nodes 'my lab/nodes.yaml'"),
        ("nodes.yaml", "s3://runs/a", " --store s3://runs/a"),
        ("/x/n.yaml", "/var/k3", " --nodes /x/n.yaml --store /var/k3"),
    ],
)
def test_what_was_typed_is_typed_again(
    nodes: str, store: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("K3DEPLOY_STORE", raising=False)
    assert options_again(Path(nodes), store) == expected


def test_what_the_environment_says_need_not_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K3DEPLOY_STORE", "s3://runs/a")
    assert options_again(Path("nodes.yaml"), "s3://runs/a") == ""


def test_a_nodes_file_with_too_few_machines_is_called_by_its_own_path() -> None:
    machines = NodesFile(nodes=(NodeEntry(name="gpu-01", address="203.0.113.1"),))
    place = Place(Path("site/rack-4.yaml"), machines, Runs(MemoryStore()), SystemClock())
    with pytest.raises(ProfileError) as caught:
        begin(place, "h100x32", None)
    assert caught.value.context["at"] == "site/rack-4.yaml"
    assert caught.value.fix == "add 3 more to site/rack-4.yaml, or take a profile for fewer nodes"
