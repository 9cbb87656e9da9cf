"""Preparing one real node that is not as it should be: what is refused leaves it as it was, what is done can be undone.

Each test starts from a fresh node and its own run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from tests.lab.lab import Lab
from tests.lab.operator import Operator, Said

pytestmark = pytest.mark.lab

PROFILE = "lab-b300x8"
IMAGE = "lmsysorg/sglang:kimi-k3-lab"
DAEMON_JSON = "/etc/docker/daemon.json"
_stores = count(1)


@dataclass
class Bench:
    """One node, and an operator who keeps progress apart for every test."""

    lab: Lab
    operator: Operator

    def up(self, until: str, *words: str) -> Said:
        return self.operator.k3deploy("up", "--profile", PROFILE, "--until", until, "--output", "json", *words)

    def ssh(self, command: str) -> str:
        return self.lab.nodes[0].ssh(command).stdout.strip()

    def docker_root(self) -> str:
        return self.ssh("sudo docker info --format '{{.DockerRootDir}}'")

    def refused(self, until: str) -> dict[str, Any]:
        """The one error of an `up` that had to fail."""
        said = self.up(until)
        assert said.code == 3, said
        (error,) = said.json["error"]["failures"]
        found: dict[str, Any] = error
        return found


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    lab = Lab.up("node-phases", profile=PROFILE)
    lab.nodes[0].ssh(f"sudo cp -a {DAEMON_JSON} {DAEMON_JSON}.lab")
    yield lab
    lab.down()


@pytest.fixture
def bench(lab: Lab) -> Iterator[Bench]:
    store = lab.folder.work / f"store-{next(_stores)}"
    bench = Bench(lab, Operator(lab, {"K3DEPLOY_STORE": str(store)}))
    yield bench
    _as_new(bench)


def _as_new(bench: Bench) -> None:
    """Whatever a test did to the node, undone by hand: a fresh machine would have another host key."""
    bench.ssh(
        "sudo sh -c 'systemctl stop docker docker.socket; mountpoint -q /ephemeral || mount /dev/nvme0n1 /ephemeral;"
        " rm -rf /ephemeral/docker /ephemeral/hf /ephemeral/k3deploy /etc/systemd/system/docker.service.d;"
        f" cp -a {DAEMON_JSON}.lab {DAEMON_JSON}; rm -f {DAEMON_JSON}.k3deploy-*;"
        " systemctl daemon-reload; systemctl reset-failed docker docker.socket; systemctl start docker.socket docker;"
        " docker ps -aq | xargs -r docker rm -f; docker images -q | xargs -r docker rmi -f' >/dev/null 2>&1"
    )


def with_daemon_json(bench: Bench, text: str) -> None:
    """Replace the file under the running daemon, as a person would."""
    bench.ssh(f"printf '%s' '{text}' | sudo tee {DAEMON_JSON}")


def test_a_fresh_node_is_prepared_once_and_given_back_as_it_was(bench: Bench) -> None:
    before = bench.ssh(f"sudo sha256sum {DAEMON_JSON}")
    said = bench.up("image")
    assert said.code == 0, said
    assert bench.docker_root() == "/ephemeral/docker"
    assert bench.ssh("stat -c '%U %a' /ephemeral/hf") == "ubuntu 755"
    assert bench.ssh("stat -c '%U %a' /ephemeral/k3deploy/*") == "ubuntu 700"
    assert bench.ssh("systemctl is-active docker.socket docker").split() == ["active", "active"]
    assert bench.ssh("sudo docker ps -aq") == "", "the container that told the version is gone"
    assert "lab" in bench.ssh("sudo docker info --format '{{.DefaultRuntime}}'"), "other keys are kept"
    again = bench.up("image")
    assert again.json["has_changed"] is False
    gone = bench.operator.k3deploy("teardown", "--confirm", "--restore")
    assert gone.code == 0, gone
    assert bench.docker_root() == "/var/lib/docker"
    assert bench.ssh(f"sudo sha256sum {DAEMON_JSON}") == before
    assert bench.ssh(f"ls -d {DAEMON_JSON}.k3deploy-* /ephemeral/docker /ephemeral/k3deploy 2>/dev/null || true") == ""


def test_a_running_container_of_somebody_stays(bench: Bench) -> None:
    bench.ssh(f"sudo docker run -d --name theirs --entrypoint /bin/sleep {IMAGE} 600")
    error = bench.refused("storage")
    assert error["what"] == "gpu-01: 1 containers are running"
    assert error["context"]["found"] == "theirs"
    assert bench.ssh("sudo docker inspect --format '{{.State.Status}}' theirs") == "running"
    assert bench.docker_root() == "/var/lib/docker"


def test_a_stopped_container_and_its_image_come_back_with_the_old_root(bench: Bench) -> None:
    bench.ssh(f"sudo docker run --name theirs --entrypoint /bin/true {IMAGE}")
    said = bench.up("storage")
    assert said.code == 0, said
    assert bench.ssh("sudo docker ps -aq") == ""
    gone = bench.operator.k3deploy("teardown", "--confirm", "--restore")
    assert gone.code == 0, gone
    assert bench.ssh("sudo docker ps -a --format '{{.Names}}'") == "theirs"


def test_a_broken_daemon_json_is_shown_and_left(bench: Bench) -> None:
    text = '{"mtu": 1450,}'
    with_daemon_json(bench, text)
    error = bench.refused("storage")
    assert error["what"] == f"gpu-01: {DAEMON_JSON} is not valid JSON"
    assert error["context"]["line"] == text
    assert bench.ssh(f"sudo cat {DAEMON_JSON}") == text
    assert bench.docker_root() == "/var/lib/docker"


def test_a_key_that_docker_does_not_know_stops_before_the_restart(bench: Bench) -> None:
    text = '{"no-such-key": 1}'
    with_daemon_json(bench, text)
    pid = bench.ssh("systemctl show docker --property=MainPID")
    error = bench.refused("storage")
    assert error["what"] == f"gpu-01: the Docker daemon does not accept the new {DAEMON_JSON}"
    assert "no-such-key" in error["why"]
    assert bench.ssh(f"sudo cat {DAEMON_JSON}") == text
    assert bench.ssh("systemctl show docker --property=MainPID") == pid, "not restarted"


def test_a_root_given_by_a_flag_is_not_fought(bench: Bench) -> None:
    bench.ssh(
        "sudo sh -c 'mkdir -p /etc/systemd/system/docker.service.d && printf"
        ' "[Service]\\nExecStart=\\nExecStart=/usr/sbin/dockerd -H fd:// --data-root /data/docker\\n"'
        " > /etc/systemd/system/docker.service.d/override.conf && systemctl daemon-reload && systemctl restart docker'"
    )
    error = bench.refused("storage")
    assert error["what"] == "gpu-01: Docker's data folder is set by a flag: --data-root /data/docker"
    assert "/etc/systemd/system/docker.service.d/override.conf" in error["context"]["found"]


def test_docker_that_does_not_start_on_the_data_disk_runs_on_where_it_was(bench: Bench) -> None:
    """A file in the way of its storage driver: the daemon finds that out only when it starts."""
    before = bench.ssh(f"sudo sha256sum {DAEMON_JSON}")
    bench.ssh("sudo sh -c 'mkdir /ephemeral/docker && touch /ephemeral/docker/overlay2'")
    error = bench.refused("storage")
    assert error["what"] == "gpu-01: Docker did not start with its new storage"
    assert "and Docker runs with it" in error["why"]
    assert bench.docker_root() == "/var/lib/docker"
    assert bench.ssh(f"sudo sha256sum {DAEMON_JSON}") == before
    assert bench.ssh("systemctl is-active docker.socket docker").split() == ["active", "active"]


def test_a_disk_that_is_not_mounted_is_not_replaced_by_a_folder(bench: Bench) -> None:
    bench.ssh("sudo umount /ephemeral")
    error = bench.refused("storage")
    assert error["what"] == "gpu-01: /ephemeral is not a disk of its own"
    assert bench.ssh("ls -A /ephemeral") == ""


def test_a_cache_of_root_is_not_taken(bench: Bench) -> None:
    bench.ssh("sudo mkdir -p /ephemeral/hf/hub")
    error = bench.refused("storage")
    assert error["what"] == "gpu-01: the cache belongs to root, not to ubuntu"
    assert bench.ssh("stat -c %U /ephemeral/hf/hub") == "root"


def test_killed_while_docker_restarts_the_node_ends_well_and_the_next_run_goes_on(bench: Bench) -> None:
    words = ("up", "--profile", PROFILE, "--until", "storage")
    said = bench.operator.killed_in("storage", *words)
    assert "storage" in said
    resumed = bench.up("storage")
    assert resumed.code == 0, resumed
    assert bench.docker_root() == "/ephemeral/docker"
    assert bench.ssh("systemctl is-active docker.socket docker").split() == ["active", "active"]
    assert bench.up("storage").json["has_changed"] is False


def test_a_full_disk_is_said_before_the_pull(bench: Bench) -> None:
    assert bench.up("storage").code == 0
    bench.lab.nodes[0].fault("disk-fill", "nvme")
    try:
        error = bench.refused("image")
    finally:
        bench.lab.nodes[0].fault("disk-free", "nvme")
    assert "free on /ephemeral" in error["what"], "preflight looks at the same disk first"
    assert bench.up("image").code == 0


def test_an_image_for_another_architecture_is_not_pulled(bench: Bench) -> None:
    profile = bench.lab.folder.work / "arm.yaml"
    profile.write_text(
        f"extends: {PROFILE}\nname: arm\ndescription: a wrong tag\nengine: {{image: {IMAGE}-arm64}}\n"
        "provenance: {source: a test, verified_by: nobody}\n"
    )
    said = bench.operator.k3deploy("up", "--profile", "arm.yaml", "--until", "image", "--output", "json")
    assert said.code == 3, said
    (error,) = said.json["error"]["failures"]
    assert error["what"] == f"gpu-01: {IMAGE}-arm64 is not built for x86_64"
    assert bench.ssh("sudo docker images -q") == ""


def test_gpus_that_are_lost_taken_or_without_a_driver_are_named(bench: Bench) -> None:
    node = bench.lab.nodes[0]
    try:
        node.fault("gpu-lost", "3")
        lost = bench.up("gpus")
        assert lost.code == 3, lost
        node.fault("gpu-back")
        node.fault("gpu-occupied", "5", "21480")
        taken = bench.refused("gpus")
        assert taken["what"] == "gpu-01: GPU 5 already in use"
        assert "pid 4711" in taken["context"]["found"]
        node.fault("gpu-back")
        node.fault("driver-lost")
        assert bench.up("gpus").code == 3
        assert bench.up("storage").code == 0, "weights can be staged without GPUs"
    finally:
        node.fault("gpu-back")
    assert bench.up("gpus").code == 0


def test_a_wiped_disk_is_noticed_and_prepared_again(bench: Bench) -> None:
    assert bench.up("image").code == 0
    bench.lab.nodes[0].fault("wipe-nvme")
    said = bench.up("image")
    assert said.code == 0, said
    assert said.json["units"]["storage/gpu-01"] == said.json["units"]["image/gpu-01"] == "changed"
    assert bench.docker_root() == "/ephemeral/docker"
    assert bench.ssh("stat -c '%U %a' /ephemeral/k3deploy/*") == "ubuntu 700"
    gone = bench.operator.k3deploy("teardown", "--confirm", "--restore")
    assert gone.code == 0, gone
    assert bench.docker_root() == "/var/lib/docker", "known from the backup: the journal was on the wiped disk"
    assert bench.ssh("ls -A /ephemeral") == "lost+found"
