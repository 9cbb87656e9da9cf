"""What the node phases' steps send to a node, and the small pure values that they share."""

import json
from collections.abc import Mapping

import pytest

from k3deploy.domain.docker_place import Move
from k3deploy.domain.errors import EngineError, NodeError, PhaseFailed
from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.findings import Finding, raise_errors, verdict
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.journal import parse
from k3deploy.domain.names import NodeName
from k3deploy.domain.private_link import PrivateLink
from k3deploy.phases.storage import MakeFolders, MoveDocker
from k3deploy.testing import FakeNodes, services
from tests.golden.plan.case import FOLDER, merged

NODE = NodeName("gpu-01")


def quiet(
    message: str,
    *,
    done: float | None = None,
    total: float | None = None,
    numbers: Mapping[str, float] | None = None,
) -> None:
    """A Progress that nobody reads."""


def test_only_missing_folders_are_asked_for() -> None:
    nodes = FakeNodes("gpu-01")
    nodes["gpu-01"].on_program("storage_folders", {"made": []})
    MakeFolders(NODE, "/nvme", "/nvme/k3deploy/r", hf_home="/nvme/hf", docker_root=None).perform(
        services(nodes=nodes), quiet
    )
    (program,) = nodes["gpu-01"].programs
    assert program.sudo
    assert program.args == {
        "mount": "/nvme",
        "run_dir": "/nvme/k3deploy/r",
        "folders": [{"path": "/nvme/hf", "owner": "login", "mode": 0o755}],
    }


def test_the_move_sends_the_planned_text_and_what_it_was_planned_on() -> None:
    nodes = FakeNodes("gpu-01")
    nodes["gpu-01"].on_program("docker_move", {"root": "/nvme/docker", "driver_type": None, "backup": "x"})
    change = Move("/etc/docker/daemon.json", "00ff", "{}\n", {}, (), can_validate=True, may_use_containerd=False)
    MoveDocker(NODE, "/nvme", "/nvme/k3deploy/r", "r", change).perform(services(nodes=nodes), quiet)
    (program,) = nodes["gpu-01"].programs
    assert program.sudo
    assert program.args == {
        "mount": "/nvme",
        "run_dir": "/nvme/k3deploy/r",
        "run_id": "r",
        "daemon_json": "/etc/docker/daemon.json",
        "seen_sha256": "00ff",
        "text": "{}\n",
        "can_validate": True,
        "may_use_containerd": False,
    }


BAD = Finding("the disk is full", why="logs", fix="free space", found="0 bytes", wanted="1 byte")
WORSE = Finding("no GPU", fix="rent one", error=EngineError)
WARNING = Finding("its clock is late", fix="set it", is_warning=True)


def test_one_error_is_raised_as_itself_with_its_facts() -> None:
    with pytest.raises(NodeError) as error:
        raise_errors(NODE, [WARNING, BAD])
    assert error.value.what == "gpu-01: the disk is full"
    assert error.value.context == {"node": "gpu-01", "found": "0 bytes", "wanted": "1 byte"}


def test_several_errors_are_all_kept_with_their_kinds() -> None:
    with pytest.raises(PhaseFailed) as error:
        raise_errors(NODE, [BAD, WARNING, WORSE])
    assert [type(failure) for failure in error.value.failures] == [NodeError, EngineError]
    assert error.value.what == "gpu-01: 2 things are in the way"


def test_warnings_raise_nothing_and_are_evidence() -> None:
    raise_errors(NODE, [WARNING])
    found = verdict("fine", [WARNING], size=3)
    assert found.is_ok
    assert found.evidence == {"size": 3, "warnings": ["its clock is late; set it"]}
    assert "warnings" not in verdict("fine", []).evidence


def test_a_bad_verdict_names_every_error_and_leaves_the_warnings() -> None:
    found = verdict("fine", [WARNING, BAD, WORSE], size=3)
    assert not found.is_ok
    assert found.summary == "the disk is full; no GPU"
    assert (found.why, found.fix) == ("logs", "free space; rent one")
    assert found.evidence == {"found": "0 bytes", "wanted": "1 byte"}


def test_equal_inputs_have_equal_digests_whatever_their_order() -> None:
    assert digest_of(a=1, b={"x": 1, "y": [2]}) == digest_of(b={"y": [2], "x": 1}, a=1)
    assert digest_of(a=1) != digest_of(a=2)
    assert digest_of(a=1) != digest_of(b=1)
    with pytest.raises(TypeError):
        digest_of(a={1, 2})


def test_an_ipv6_address_stands_in_brackets_before_a_port() -> None:
    assert PrivateLink("fd00::1", "ens6").host == "[fd00::1]"
    assert PrivateLink("10.0.0.1", "ens6").host == "10.0.0.1"


def test_the_journal_says_what_an_undo_would_do() -> None:
    rows = [{"kind": "folder", "path": "/nvme/hf"}, {"kind": "daemon-json", "path": "/etc/d.json", "backup": "b"}]
    assert [entry.undo for entry in parse(rows)] == [
        "remove /nvme/hf",
        "put /etc/d.json back as it was and restart Docker",
    ]


def h100(**changes: object) -> NodeFacts:
    body = json.loads((FOLDER / "base/h100.json").read_text("utf-8"))["facts"]
    return NodeFacts.parse(merged(body, changes))


def test_facts_of_eight_h100_are_typed() -> None:
    facts = h100()
    assert facts.os_title == "Ubuntu 24.04.2 LTS"
    assert facts.gpus is not None
    assert [gpu.memory_total_mib for gpu in facts.gpus] == [81559] * 8
    assert facts.storage is not None
    assert (facts.storage.source, facts.storage.is_mount_point) == ("/dev/vdb1", True)
    assert facts.identity.as_dict() == {
        "machine_id": "f96436826d484daeba53d696dccf958d",
        "boot_id": "7beb7943-aec2-45e2-9ce4-e67949d0baaa",
        "mount_uuid": "8517275e-da07-4bf9-a6ed-6f0fe3e93b54",
    }
    assert facts.active_hcas == ()


def test_active_rdma_devices_are_named_once() -> None:
    ports = [("mlx5_0", 1, "ACTIVE"), ("mlx5_0", 2, "ACTIVE"), ("mlx5_1", 1, "DOWN"), ("mlx5_2", 1, "ACTIVE")]
    rows = [
        {"device": device, "port": port, "state": state, "link_layer": "InfiniBand", "rate_gbps": 400.0}
        for device, port, state in ports
    ]
    assert h100(hcas=rows).active_hcas == ("mlx5_0", "mlx5_2")


def test_gb300_on_arm_with_four_gpus() -> None:
    gpus = [
        {
            "index": index,
            "name": "NVIDIA GB300",
            "uuid": f"GPU-{index}",
            "memory_total_mib": 284208,
            "memory_used_mib": None,  # [N/A]
            "driver": "580.95.05",
            "pci": f"000{index}:01:00.0",
        }
        for index in range(4)
    ]
    facts = h100(gpus=gpus, architecture="aarch64")
    assert facts.architecture == "aarch64"
    assert facts.gpus is not None
    assert {(gpu.name, gpu.memory_total_mib, gpu.memory_used_mib) for gpu in facts.gpus} == {
        ("NVIDIA GB300", 284208, None)
    }


def test_what_could_not_be_read_is_none_and_has_a_reason() -> None:
    facts = h100(storage=None, os=None, gpus=None, reasons={"storage": "/ephemeral does not exist"})
    assert (facts.storage, facts.os_id, facts.gpus, facts.identity.mount_uuid) == (None, None, None, None)
    assert facts.why("storage") == "/ephemeral does not exist"
    assert facts.why("gpus") == "the node did not say"
