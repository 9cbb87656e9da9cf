"""Promises about one node: no secret is left anywhere, and weights can be staged before there is a GPU."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3deploy.domain import events as ev
from tests.lab.hub_control import HubControl
from tests.lab.lab import Lab
from tests.lab.operator import Operator

pytestmark = pytest.mark.lab

TOKEN = "hf_lab0only0aaaabbbbccccdddd"
PUBLIC = """\
extends: lab-b300x8
name: lab-public
description: one node whose API listens on every address, with a key
network: {api: public, private_subnet: 10.0.0.0/24}
provenance: {source: a test, verified_by: nobody}
"""
UP = ("up", "--profile", "public.yaml")
# Where something could be written down on a node; the kernel's and Docker's layers hold no text of ours.
NODE_PLACES = "/ephemeral /etc /var/log /var/lib/systemd /root /home /run /tmp"


@pytest.fixture(scope="module")
def operator() -> Iterator[Operator]:
    lab = Lab.up("promises", profile="lab-b300x8", nodes=1)
    (lab.folder.work / "public.yaml").write_text(PUBLIC)
    yield Operator(lab, {"HF_TOKEN": TOKEN})
    lab.down()


def places_on_node(operator: Operator, secret: str) -> list[str]:
    """Files, process arguments and container settings of the node in which the text stands."""
    node = operator.lab.nodes[0]
    # The text goes there encoded, as sudo logs the arguments of what it runs.
    pattern = base64.b64encode(secret.encode()).decode()
    look = f"echo {pattern} | base64 -d > /dev/shm/p; sudo grep -rlaF -f /dev/shm/p {NODE_PLACES}; rm /dev/shm/p"
    files = node.ssh(look, check=False).stdout.split()
    shown = node.ssh("sudo sh -c 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null' | tr '\\0' '\\n'").stdout
    inspected = node.ssh("sudo docker inspect $(sudo docker ps -aq) 2>/dev/null", check=False).stdout
    return [*files, *["a process"] * (secret in shown), *["docker inspect"] * (secret in inspected)]


def places_of_operator(operator: Operator, secret: str) -> list[str]:
    """Files of the operator's folder, the store in it among them."""
    found = (path for path in Path(operator.lab.folder.work).rglob("*") if path.is_file())
    return [str(path) for path in found if secret.encode() in path.read_bytes()]


def test_weights_are_staged_before_there_is_a_gpu(operator: Operator) -> None:
    node = operator.lab.nodes[0]
    node.fault("driver-lost")
    HubControl(operator.lab).fault({"require_token": True})
    staged = operator.k3deploy(*UP, "--until", "weights-verify")
    assert staged.code == 0, staged
    refused = operator.k3deploy(*UP)
    assert refused.code == 3, refused
    assert "gpu-01" in refused.stderr
    assert "still bill" in refused.stderr.splitlines()[-1]
    node.fault("gpu-back")


def test_then_only_the_launch_is_left_and_no_secret_is_in_sight(operator: Operator) -> None:
    said = operator.k3deploy(*UP, "--output", "json")
    assert said.code == 0, said
    starts = [index for index, event in enumerate(operator.events()) if isinstance(event, ev.RunStarted)]
    steps = {event.phase for event in operator.events()[starts[-1] :] if isinstance(event, ev.StepStarted)}
    assert "weights-fetch" not in steps
    assert "weights-verify" not in steps
    assert TOKEN not in str(said)
    assert places_on_node(operator, TOKEN) == []
    assert places_of_operator(operator, TOKEN) == []

    key_file = said.json["answers"]["serve-0"]["key_file"].split(":", 1)[1]
    key = operator.lab.nodes[0].ssh(f"sudo cat {key_file}").stdout.split()[-1].strip("'\"")
    assert len(key) >= 24
    assert operator.lab.nodes[0].ssh(f"sudo stat -c '%a %U' {key_file}").stdout.split() == ["600", "root"]
    assert key not in str(said)
    assert key not in str(operator.k3deploy("logs", "--node", "gpu-01"))
    assert places_of_operator(operator, key) == []
    # The engine prints its resolved options, its key among them, into its own log, which Docker keeps for root.
    beside = [place for place in places_on_node(operator, key) if "/docker/containers/" not in place]
    assert beside == [key_file]

    gone = operator.k3deploy("teardown", "--confirm")
    assert gone.code == 0, gone
    assert places_on_node(operator, key) == []
    assert places_of_operator(operator, key) == []
    assert places_of_operator(operator, TOKEN) == []
