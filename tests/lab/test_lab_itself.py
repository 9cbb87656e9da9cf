"""The lab does to its nodes what it says, from rent to return: what every other lab test builds on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab import folders
from tests.lab.cgroups import machine_mount
from tests.lab.commands import run
from tests.lab.errors import LabError
from tests.lab.kernel import NETNS_FOLDER
from tests.lab.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab
NAME = "itself"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    lab = Lab.up(NAME, nodes=2)
    yield lab
    lab.down()


def traces(lab: Lab) -> list[str]:
    """What this lab has on the machine beside its folder."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(lab.path) in line]
    loops = [line for line in run("losetup", "--list", "--noheadings").stdout.splitlines() if str(lab.path) in line]
    netns = [path.name for path in NETNS_FOLDER.glob(f"{lab.names.control_netns}*")]
    cgroups = [path.name for path in machine_mount().glob(f"{lab.names.cgroup}*")]
    return mounts + loops + netns + cgroups


def test_a_node_is_a_machine_of_its_own(lab: Lab) -> None:
    first, second = lab.nodes
    assert first.ssh("systemctl is-system-running").stdout.strip() == "running"
    assert first.ssh("hostname").stdout.strip() == "gpu-01"
    ids = {node.ssh("cat /etc/machine-id").stdout for node in (first, second)}
    assert len(ids) == 2
    assert first.host_key() != second.host_key()
    assert first.ssh("id -un; id -Gn; sudo -n id -un").stdout.split() == ["ubuntu", "ubuntu", "root"]
    assert first.ssh("python3 -m pip", check=False).returncode != 0


def test_nodes_meet_on_both_networks_and_nobody_gets_out(lab: Lab) -> None:
    first, second = lab.nodes
    for address in (second.names.address, second.names.private_address):
        assert first.ssh(f"ping -c 1 -W 5 {address}").returncode == 0
    outside = first.ssh("ping -c 1 -W 5 192.0.2.1", check=False)
    assert "Destination Net Unreachable" in outside.stdout  # said at once by the lab's own router


def test_docker_pulls_through_the_labs_registry_and_runs_as_the_engine_is_run(lab: Lab) -> None:
    node = lab.nodes[0]
    image = "lmsysorg/sglang:kimi-k3-lab"
    node.ssh(f"sudo docker pull --quiet {image}")
    options = "--gpus all --network host --ipc host --privileged --ulimit memlock=-1 --entrypoint /usr/bin/id"
    assert node.ssh(f"sudo docker run --rm {options} {image} -u").stdout.strip() == "0"
    node.ssh("sudo docker image prune --all --force")


def test_exec_is_on_the_labs_network_with_its_environment(lab: Lab) -> None:
    program = "import os, urllib.request as u; print(u.urlopen(os.environ['HF_ENDPOINT'] + '/__lab__/health').status)"
    assert lab.exec(["python3", "-c", program]).stdout.strip() == "200"
    assert lab.exec(["pwd"]).stdout.strip() == str(lab.path / "work")
    assert lab.exec(["env"], env={"K3DEPLOY_LAB": "mine"}).stdout.count("K3DEPLOY_LAB=mine\n") == 1


def test_a_service_can_be_out(lab: Lab) -> None:
    probe = ["curl", "-sS", "-o", "/dev/null", f"{lab.env['HF_ENDPOINT']}/__lab__/health"]
    lab.stop_service("hub")
    assert lab.exec(probe).returncode != 0
    lab.start_service("hub")
    assert lab.exec(probe).returncode == 0


def test_a_reboot_keeps_the_machine(lab: Lab) -> None:
    node = lab.nodes[0]
    node.ssh("echo kept | sudo tee /ephemeral/kept")
    before = node.host_key(), node.ssh("cat /etc/machine-id").stdout
    boot = node.ssh("cat /proc/sys/kernel/random/boot_id").stdout
    inventory = node.inventory()
    node.fault("reboot")
    assert (node.host_key(), node.ssh("cat /etc/machine-id").stdout) == before
    assert node.ssh("cat /proc/sys/kernel/random/boot_id").stdout != boot
    assert node.ssh("cat /ephemeral/kept").stdout == "kept\n"
    assert node.inventory() == inventory


def test_a_wiped_nvme_leaves_the_root_disk(lab: Lab) -> None:
    node = lab.nodes[0]
    node.ssh("echo lost | sudo tee /ephemeral/lost; echo kept > kept")
    key = node.host_key()
    node.fault("wipe-nvme")
    assert node.ssh("ls /ephemeral").stdout.split() == ["lost+found"]
    assert node.ssh("cat kept").stdout == "kept\n"
    assert node.host_key() == key


def test_a_preempted_node_is_another_machine_at_the_same_address(lab: Lab) -> None:
    node = lab.nodes[1]
    node.ssh("echo lost > lost; echo lost | sudo tee /ephemeral/lost")
    key = node.host_key()
    nodes_yaml = (lab.path / "work" / "nodes.yaml").read_text()
    assert key in nodes_yaml
    node.fault("preempt")
    assert node.ssh("ls; ls /ephemeral").stdout.split() == ["lost+found"]
    assert node.host_key() != key
    assert node.host_key() in (lab.path / "known_hosts").read_text()
    assert (lab.path / "work" / "nodes.yaml").read_text() == nodes_yaml


def test_a_node_without_power_is_silent_and_comes_back(lab: Lab) -> None:
    node = lab.nodes[1]
    node.fault("kill")
    assert not node.is_running()
    assert node.ssh("true", check=False).returncode != 0
    node.fault("start")
    assert node.ssh("true").returncode == 0


def test_a_pulled_cable_is_plugged_in_again(lab: Lab) -> None:
    node = lab.nodes[1]
    node.fault("link-down")
    assert node.ssh("true", check=False).returncode != 0
    node.fault("link-up")
    assert node.ssh("true").returncode == 0


@pytest.mark.parametrize(("disk", "path"), [("nvme", "/ephemeral/x"), ("root", "x")])
def test_a_full_disk_has_no_space(lab: Lab, disk: str, path: str) -> None:
    node = lab.nodes[0]
    node.fault("disk-fill", disk)
    full = node.ssh(f"dd if=/dev/zero of={path} bs=1M count=1", check=False)
    assert "No space left on device" in full.stderr
    node.fault("disk-free", disk)
    node.ssh(f"dd if=/dev/zero of={path} bs=1M count=1; rm {path}")


def test_a_lost_gpu_is_reported_as_lost(lab: Lab) -> None:
    node = lab.nodes[0]
    assert node.ssh("nvidia-smi -L").stdout.count("UUID") == 8
    node.fault("gpu-lost", "3")
    assert node.ssh("nvidia-smi -L", check=False).stdout.count("UUID") == 7
    node.fault("gpu-back")
    assert node.ssh("nvidia-smi -L").stdout.count("UUID") == 8


def test_a_rate_is_set_and_lifted_at_both_ends(lab: Lab) -> None:
    node = lab.nodes[0]
    seen = "sudo tc qdisc show dev ens6"
    node.fault("rate", "100", "ens6")
    assert "rate 100Mbit" in node.ssh(seen).stdout
    assert "rate 100Mbit" in lab.exec(["tc", "qdisc", "show", "dev", node.names.bridge_port("ens6")]).stdout
    node.fault("rate", "0", "ens6")
    assert "rate" not in node.ssh(seen).stdout


def test_wrong_faults_are_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="no fault 'flood'"):
        lab.nodes[0].fault("flood")
    with pytest.raises(LabError, match="rate fast"):
        lab.nodes[0].fault("rate", "fast")


def test_up_again_is_the_same_lab_and_another_shape_is_refused(lab: Lab) -> None:
    pid = lab.nodes[0].leader_pid()
    again = Lab.up(NAME, nodes=2)
    assert again.nodes[0].leader_pid() == pid
    with pytest.raises(LabError, match="in another shape"):
        Lab.up(NAME, nodes=3)


def test_down_leaves_nothing_but_the_cache(lab: Lab) -> None:
    other = Lab.up(f"{NAME}-2", nodes=1, docker=False)
    assert traces(other)
    assert other.nodes[0].ssh("systemctl is-active docker", check=False).stdout.strip() == "inactive"
    other.down()
    assert traces(other) == []
    assert not other.path.exists()
    assert not (folders.labs() / f".{other.names.name}.lock").exists()
    assert lab.nodes[0].ssh("true").returncode == 0, "the lab beside it must not notice"
    assert any(folders.cache().iterdir())
