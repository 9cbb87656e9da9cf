"""A command that is proposed means the same machines and store as the one that was typed."""

from pathlib import Path

import pytest

from k3deploy.cli.options import options_again


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
