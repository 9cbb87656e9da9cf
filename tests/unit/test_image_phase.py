"""The image phase's steps on fake nodes, and the pure parts that it decides with."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from k3deploy.adapters.engines import option_lists
from k3deploy.adapters.profiles import load_profile
from k3deploy.contracts import Services
from k3deploy.domain import cuda_requirement
from k3deploy.domain.command import Secret
from k3deploy.domain.engine_check import check_engine
from k3deploy.domain.errors import EngineError, Interrupted, ProgramFailed
from k3deploy.domain.image_ref import ImagePin, ImageRef, digest_of_repository, machine_of, wanted_image
from k3deploy.domain.launch.base import Address, Launch
from k3deploy.domain.launch.render import render_replica
from k3deploy.domain.names import NodeName
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.topology import assign
from k3deploy.phases.detached import DetachedJob, follow_job
from k3deploy.phases.image import PullImage, ReadEngineVersion, SettleImage
from k3deploy.testing import FakeCancel, FakeNodes, MemoryPins, services

DIGEST = "sha256:" + "a" * 64
PIN = ImagePin("lmsysorg/sglang:kimi-k3", "lmsysorg/sglang", DIGEST, ("linux/amd64",))
NODE = NodeName("gpu-01")
RUN = "h100x32-20260728-074500-0a1b"


class Told:
    """A Progress that keeps what it is told."""

    def __init__(self) -> None:
        self.words: list[tuple[str, float | None, float | None]] = []
        self.numbers: list[Mapping[str, float]] = []

    def __call__(
        self,
        message: str,
        *,
        done: float | None = None,
        total: float | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> None:
        self.words.append((message, done, total))
        self.numbers.append(numbers or {})


def world(**pins: Mapping[str, Any]) -> tuple[Services, FakeNodes]:
    nodes = FakeNodes("gpu-01")
    return services(nodes=nodes, pins=MemoryPins(**pins)), nodes


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("lmsysorg/sglang:kimi-k3", ("lmsysorg/sglang", "kimi-k3", None)),
        ("lmsysorg/sglang", ("lmsysorg/sglang", None, None)),
        ("reg:5000/a/b", ("reg:5000/a/b", None, None)),
        ("reg:5000/a/b:t", ("reg:5000/a/b", "t", None)),
        (f"a/b@{DIGEST}", ("a/b", None, DIGEST)),
        (f"a/b:t@{DIGEST}", ("a/b", "t", DIGEST)),
    ],
)
def test_references_come_apart(text: str, parts: tuple[str, str | None, str | None]) -> None:
    found = ImageRef.parse(text)
    assert (found.repository, found.tag, found.digest) == parts


def test_a_digest_says_it_all_and_no_tag_means_latest() -> None:
    assert ImageRef.parse(f"a/b:t@{DIGEST}").text == f"a/b@{DIGEST}"
    assert ImageRef.parse("a/b").text == "a/b:latest"


def test_the_profiles_digest_comes_before_its_tag() -> None:
    engine = load_profile("h100x32").engine
    assert wanted_image(engine).text == engine.image
    assert wanted_image(engine.model_copy(update={"digest": DIGEST})).text == f"lmsysorg/sglang@{DIGEST}"


def test_a_digest_is_found_under_the_long_and_the_short_name() -> None:
    names = ["other/x@sha256:1", f"docker.io/lmsysorg/sglang@{DIGEST}"]
    assert digest_of_repository("lmsysorg/sglang", names) == DIGEST
    assert digest_of_repository("docker.io/lmsysorg/sglang", [f"lmsysorg/sglang@{DIGEST}"]) == DIGEST
    assert digest_of_repository("mirror/lmsysorg/sglang", names) is None


def test_dockers_words_for_architectures() -> None:
    assert (machine_of("amd64"), machine_of("arm64"), machine_of("riscv64")) == ("x86_64", "aarch64", "riscv64")


def test_the_first_to_settle_wins() -> None:
    svc, _ = world(image=PIN.as_dict())
    told = Told()
    SettleImage(ImagePin(PIN.asked, PIN.repository, "sha256:" + "b" * 64)).perform(svc, told)
    assert svc.pins.get("image") == PIN.as_dict()
    assert told.words == [("lmsysorg/sglang:kimi-k3 is " + DIGEST[:19], None, None)]


def test_what_is_pulled_is_what_the_run_settled_on_as_a_job_of_root() -> None:
    svc, nodes = world(image=PIN.as_dict())
    node = nodes["gpu-01"]
    node.on_program("job_start", {"state": "running", "is_new": True, "unit": "x"})
    words = [{"message": "pulling", "done": 5, "total": 10}]
    node.on_program("job_watch", {"id": "sha256:1"}, progress=words)
    told = Told()
    PullImage(NODE, RUN, "/nvme/k3deploy/run/jobs", image_bytes=7, timeout_s=99).perform(svc, told)
    start, watch = node.programs
    assert start.args["id"] == f"{RUN}-image-pull"
    assert start.args["user"] == "root"
    assert start.args["args"]["reference"] == f"lmsysorg/sglang@{DIGEST}"
    assert start.args["args"]["image_bytes"] == 7
    assert start.sudo
    assert "image_pull" in start.includes
    assert watch.args["dir"] == start.args["dir"] == "/nvme/k3deploy/run/jobs/image-pull"
    assert watch.timeout_s == 99
    assert told.words == [("pulling", 5, 10)]


def test_the_version_is_read_once_per_digest() -> None:
    svc, nodes = world(image=PIN.as_dict())
    node = nodes["gpu-01"]
    node.on_program("image_version", {"version": "0.5.23"})
    action = ReadEngineVersion(NODE, RUN, "sglang")
    action.perform(svc, Told())
    action.perform(svc, Told())
    assert len(node.programs) == 1
    assert node.programs[0].args["name"] == f"k3deploy-{RUN}-version"
    assert svc.pins.get("engine-version") == {"digest": DIGEST, "version": "0.5.23"}


def job(**changes: Any) -> DetachedJob:
    values = {"node": NODE, "id": "run-fetch", "folder": "/nvme/j", "entry": "image_pull", "args": {"a": 1}}
    return DetachedJob(**{**values, "silent_s": 60, "timeout_s": 100, **changes})


def test_every_number_of_a_jobs_word_is_told_by_its_name() -> None:
    svc, nodes = world()
    nodes["gpu-01"].on_program("job_start", {"state": "running"})
    fetching = {"message": "fetching", "done": 5, "total": 10, "hub_bps": 3e9, "files_done": 2}
    unknown = {"message": "fetching", "bound_s": None, "pick": "swarm", "is_late": True}
    nodes["gpu-01"].on_program("job_watch", {}, progress=[fetching, unknown])
    told = Told()
    follow_job(svc, job(), told)
    assert told.words == [("fetching", 5, 10), ("fetching", None, None)]
    assert told.numbers == [{"hub_bps": 3e9, "files_done": 2.0}, {}]


def test_a_jobs_secrets_travel_apart_from_its_arguments() -> None:
    svc, nodes = world()
    nodes["gpu-01"].on_program("job_start", {"state": "running"})
    nodes["gpu-01"].on_program("job_watch", {"ok": True})
    assert follow_job(svc, job(secrets={"token": Secret("hf_x")}), Told()) == {"ok": True}
    start = nodes["gpu-01"].programs[0]
    assert start.secrets == {"token": Secret("hf_x")}
    assert "hf_x" not in json.dumps(start.args)


def test_a_jobs_own_words_are_the_error() -> None:
    svc, nodes = world()
    nodes["gpu-01"].on_program("job_start", {"state": "running"})
    nodes["gpu-01"].on_program("job_watch", ProgramFailed(what="no room for the image", fix="free space"))
    with pytest.raises(ProgramFailed, match="no room for the image"):
        follow_job(svc, job(), Told())


def test_after_ctrl_c_the_job_goes_on_and_we_do_not_follow_it() -> None:
    nodes = FakeNodes("gpu-01")
    nodes["gpu-01"].on_program("job_start", {"state": "running"})
    nodes["gpu-01"].on_program("job_watch", {"ok": True}, progress=[{"message": "one"}, {"message": "two"}])
    cancel = FakeCancel()
    cancel.set()
    told = Told()
    with pytest.raises(Interrupted, match="which goes on there"):
        follow_job(services(nodes=nodes, cancel=cancel), job(), told)
    assert [word[0] for word in told.words] == ["one"]


def launches(flags: Mapping[str, Any] | None = None) -> tuple[Launch, ...]:
    profile = load_profile("h100x32")
    if flags:
        engine = profile.engine.model_copy(update={"flags": {**profile.engine.flags, **flags}})
        profile = profile.model_copy(update={"engine": engine})
    names = [f"gpu-{number:02d}" for number in range(1, profile.node_count + 1)]
    nodes = NodesFile(nodes=tuple(NodeEntry(name=name, address=name) for name in names))
    replica = assign(profile, nodes).replicas[0]
    addresses = {node: Address(node, "10.0.0.1", "ens6") for node in replica.nodes}
    return render_replica(profile, replica, addresses, image=PIN.reference)


def test_a_version_inside_the_range_with_a_list_is_checked() -> None:
    checked = check_engine(load_profile("h100x32").engine, "0.5.23", launches(), option_lists("sglang"))
    assert checked.options == "options checked against the list of 0.5.23"


def test_an_option_that_the_version_does_not_know_stops_the_run_and_is_named_once() -> None:
    with pytest.raises(EngineError) as error:
        check_engine(load_profile("h100x32").engine, "0.5.23", launches({"no-such-option": 1}), option_lists("sglang"))
    assert error.value.context["found"] == "--no-such-option"
    assert error.value.what.count("--no-such-option") == 1, "not once per rank"


@pytest.mark.parametrize("version", ["0.4.9", "0.6.0", "0.5.16", "git-1234"])
def test_a_version_outside_the_range_stops_the_run(version: str) -> None:
    with pytest.raises(EngineError) as error:
        check_engine(load_profile("h100x32").engine, version, launches(), option_lists("sglang"))
    assert error.value.context == {"found": version, "wanted": ">=0.5.17,<0.6"}


REQUIRE = "NVIDIA_REQUIRE_CUDA=cuda>=13.0 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=570,driver<571"


@pytest.mark.parametrize(
    ("driver", "unmet"),
    [
        ("580.95.05", None),  # CUDA 13.0
        ("590.10", None),
        ("570.133.20", None),  # older, and on the list: the run of seed 003
        ("535.230.02", None),
        ("550.54.15", "cuda>=13.0"),
        ("575.57.08", "cuda>=13.0"),
        ("536.0", "cuda>=13.0"),
    ],
)
def test_f011_a_requirement_is_read_with_all_its_alternatives(driver: str, unmet: str | None) -> None:
    assert cuda_requirement.unmet(["PATH=/bin", REQUIRE], driver) == unmet


def test_no_requirement_is_always_met() -> None:
    assert cuda_requirement.unmet([], "1.0") is None
    assert cuda_requirement.unmet(["NVIDIA_REQUIRE_CUDA="], "1.0") is None


@pytest.mark.parametrize(
    ("requirement", "driver", "unmet"),
    [
        ("cuda>=12.8", "570.1", None),
        ("cuda>=12.8", "565.1", "cuda>=12.8"),
        ("cuda>=12.0", "520.0", "cuda>=12.0"),
        ("driver!=570.1", "570.1", "driver!=570.1"),
        ("driver=570.1.0", "570.1", None),
        ("driver>570", "570.0", "driver>570"),
        ("driver<=570", "570.0", None),
        ("arch>=9.0", "1.0", None),  # not compared: what we do not know does not speak against a driver
    ],
)
def test_single_conditions(requirement: str, driver: str, unmet: str | None) -> None:
    assert cuda_requirement.unmet([f"NVIDIA_REQUIRE_CUDA={requirement}"], driver) == unmet
