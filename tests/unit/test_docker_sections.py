"""The docker and image sections and the image programs, asked of a daemon's socket."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote import image_pull, image_resolve, image_version
from k3deploy.remote.dockerd import Dockerd, DockerRefused, NoDaemon, image_path
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.sections import docker, image
from tests.unit.docker_socket import INFO, DockerSocket, docker_socket

DIGEST = "sha256:" + "a" * 64
REFERENCE = f"lmsysorg/sglang@{DIGEST}"
LOCAL = {
    "Id": "sha256:1",
    "RepoDigests": [REFERENCE],
    "Architecture": "amd64",
    "Os": "linux",
    "Size": 13_300_000_000,
    "Config": {"Env": ["PATH=/usr/bin", "NVIDIA_REQUIRE_CUDA=cuda>=13.0"]},
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DockerSocket]:
    with docker_socket(tmp_path) as found:
        yield found


def unsaid(_word: dict[str, Any]) -> None:
    """For programs whose words a test does not look at."""


def test_the_daemon_about_itself_and_its_containers(daemon: DockerSocket) -> None:
    daemon.routes["GET", "/containers/json"] = [
        {"Id": "c" * 64, "Names": ["/sgl"], "Image": "lmsysorg/sglang", "State": "running", "Labels": {}},
        {"Id": "d" * 64, "Names": [], "Image": "x", "State": "exited"},
    ]
    found = docker.answer({"socket": daemon.path})
    assert found["state"] == "answers"
    assert found["info"]["runtimes"] == ["nvidia", "runc"]
    assert found["info"]["driver_type"] is None
    assert [(row["name"], row["state"]) for row in found["containers"]] == [("sgl", "running"), ("d" * 12, "exited")]
    assert daemon.asked("GET", "/containers/json") == [{"all": "1"}], "stopped ones, too"


def test_a_daemon_that_keeps_images_in_containerd(daemon: DockerSocket) -> None:
    daemon.routes["GET", "/info"] = {**INFO, "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    assert docker.answer({"socket": daemon.path})["info"]["driver_type"] == "io.containerd.snapshotter.v1"


def test_a_daemon_that_refuses_is_silent_with_its_words(daemon: DockerSocket) -> None:
    daemon.routes["GET", "/info"] = (500, {"message": "disk is gone"})
    found = docker.answer({"socket": daemon.path})
    assert (found["state"], found["info"]) == ("silent", None)
    assert "500" in found["why"]
    assert "disk is gone" in found["why"]


def test_no_socket_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(NoDaemon, match="none"):
        Dockerd(str(tmp_path / "none.sock")).get("/info")
    assert docker.answer({"socket": str(tmp_path / "none.sock")})["state"] in ("absent", "silent")


def test_a_local_image_by_its_digest(daemon: DockerSocket) -> None:
    daemon.routes["GET", f"/images/{REFERENCE}/json"] = LOCAL
    found = image.answer({"reference": REFERENCE, "socket": daemon.path})["image"]
    assert found["digests"] == [REFERENCE]
    assert found["requires"] == ["NVIDIA_REQUIRE_CUDA=cuda>=13.0"], "other variables are nobody's business"


def test_an_absent_image_is_none_and_an_error_says_why(daemon: DockerSocket) -> None:
    assert image.answer({"reference": REFERENCE, "socket": daemon.path}) == {"image": None, "why": ""}
    daemon.routes["GET", f"/images/{REFERENCE}/json"] = (500, {"message": "broken"})
    assert image.answer({"reference": REFERENCE, "socket": daemon.path}) == {"image": None, "why": "broken"}


def test_a_reference_keeps_its_slashes_and_nothing_else_of_a_path() -> None:
    assert image_path("reg:5000/a/b:tag?x=1#y") == "/images/reg:5000/a/b:tag%3Fx%3D1%23y/json"


def test_resolve_names_digest_and_real_platforms(daemon: DockerSocket) -> None:
    daemon.routes["GET", "/distribution/lmsysorg/sglang:kimi-k3/json"] = {
        "Descriptor": {"digest": DIGEST},
        "Platforms": [
            {"os": "linux", "architecture": "arm64"},
            {"os": "linux", "architecture": "amd64"},
            {"os": "unknown", "architecture": "unknown"},  # an attestation
        ],
    }
    args = {"reference": "lmsysorg/sglang:kimi-k3", "socket": daemon.path}
    assert image_resolve.main(args, unsaid) == {"digest": DIGEST, "platforms": ["linux/amd64", "linux/arm64"]}


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (404, "the registry has no image lmsysorg/sglang:x"),
        (401, "the registry does not let this node read lmsysorg/sglang:x"),
        (403, "the registry does not let this node read lmsysorg/sglang:x"),
        (500, "the registry of lmsysorg/sglang:x cannot be asked"),
    ],
)
def test_resolve_tells_refusals_apart_by_status(daemon: DockerSocket, status: int, what: str) -> None:
    daemon.routes["GET", "/distribution/lmsysorg/sglang:x/json"] = (status, {"message": "the daemon's words"})
    with pytest.raises(Refusal) as refusal:
        image_resolve.main({"reference": "lmsysorg/sglang:x", "socket": daemon.path}, unsaid)
    assert refusal.value.what == what
    assert refusal.value.why == "the daemon's words"


def pull_args(daemon: DockerSocket, run_dir: Path, **changes: Any) -> dict[str, Any]:
    args = {"reference": REFERENCE, "image_bytes": 1, "silence_s": 5.0, "socket": daemon.path, "run_dir": str(run_dir)}
    return {**args, **changes}


def test_a_pull_names_the_digest_and_tells_bytes_over_all_layers(daemon: DockerSocket, tmp_path: Path) -> None:
    def create(_request: dict[str, Any]) -> list[dict[str, Any]]:
        daemon.routes["GET", f"/images/{REFERENCE}/json"] = LOCAL
        return [
            {"status": "Pulling from lmsysorg/sglang", "id": DIGEST},
            {"status": "Pulling fs layer", "progressDetail": {}, "id": "l1"},
            {"status": "Pulling fs layer", "progressDetail": {}, "id": "l2"},
            {"status": "Already exists", "progressDetail": {}, "id": "l3"},
            {"status": "Downloading", "progressDetail": {"current": 10, "total": 100}, "id": "l1"},
            {"status": "Downloading", "progressDetail": {"current": 50, "total": 60}, "id": "l2"},
            {"status": "Download complete", "progressDetail": {}, "id": "l2"},
            {"status": "Downloading", "progressDetail": {"current": 100, "total": 100}, "id": "l1"},
            {"status": "Extracting", "progressDetail": {"current": 7, "total": 100}, "id": "l1"},
            {"status": "Pull complete", "progressDetail": {}, "id": "l1"},
            {"status": "Pull complete", "progressDetail": {}, "id": "l2"},
            {"status": f"Digest: {DIGEST}"},
        ]

    daemon.routes["POST", "/images/create"] = create
    words: list[dict[str, Any]] = []
    result = image_pull.main(pull_args(daemon, tmp_path), words.append)
    assert result == {"id": "sha256:1", "size_bytes": 13_300_000_000, "was_there": False}
    assert daemon.asked("POST", "/images/create") == [{"fromImage": "lmsysorg/sglang", "tag": DIGEST}]
    done = [(word["done"], word["total"]) for word in words]
    assert (10, 100) in done
    assert (60, 160) in done
    assert done[-1] == (160, 160)
    assert words[-1]["message"] == "pulling the image: 3 of 3 layers unpacked"


def test_an_image_that_is_there_is_not_pulled(daemon: DockerSocket, tmp_path: Path) -> None:
    daemon.routes["GET", f"/images/{REFERENCE}/json"] = LOCAL
    assert image_pull.main(pull_args(daemon, tmp_path), unsaid)["was_there"] is True
    assert daemon.asked("POST", "/images/create") == []


def test_no_room_is_said_before_the_pull(daemon: DockerSocket, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refusal:
        image_pull.main(pull_args(daemon, tmp_path, image_bytes=1 << 60), unsaid)
    assert refusal.value.what == "no room for the image"
    assert refusal.value.context["wanted"] == f"{1 << 60} bytes"
    assert daemon.asked("POST", "/images/create") == []


def test_an_error_in_the_stream_is_the_reason(daemon: DockerSocket, tmp_path: Path) -> None:
    daemon.routes["POST", "/images/create"] = [
        {"status": "Pulling fs layer", "id": "l1"},
        {"error": "no route to host"},
    ]
    with pytest.raises(Refusal) as refusal:
        image_pull.main(pull_args(daemon, tmp_path), unsaid)
    assert (refusal.value.what, refusal.value.why) == (f"{REFERENCE} could not be pulled", "no route to host")


def test_a_pull_that_ends_without_the_image_is_no_success(daemon: DockerSocket, tmp_path: Path) -> None:
    daemon.routes["POST", "/images/create"] = [{"status": "done"}]
    with pytest.raises(Refusal, match="ended, but the image is not there"):
        image_pull.main(pull_args(daemon, tmp_path), unsaid)


def frames(*parts: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack(">BxxxI", stream, len(data)) + data for stream, data in parts)


def version_routes(daemon: DockerSocket, *, logs: bytes, status: int = 0) -> None:
    daemon.routes["POST", "/containers/create"] = {"Id": "abc"}
    daemon.routes["POST", "/containers/abc/start"] = (204, b"")
    daemon.routes["POST", "/containers/abc/wait"] = {"StatusCode": status}
    daemon.routes["GET", "/containers/abc/logs"] = logs
    daemon.routes["DELETE", "/containers/abc"] = (204, b"")


def version_args(daemon: DockerSocket) -> dict[str, Any]:
    return {"reference": REFERENCE, "package": "sglang", "name": "k3deploy-run-version", "socket": daemon.path}


def test_the_version_comes_out_of_a_container_without_network_that_is_removed(daemon: DockerSocket) -> None:
    noise = b"WARNING: no GPU\n"
    version_routes(
        daemon, logs=frames((2, noise), (1, b"hello from a sitecustomize\n"), (1, b'{"version": "0.5.23"}\n'))
    )
    assert image_version.main(version_args(daemon), unsaid) == {"version": "0.5.23"}
    body = next(body for _, path, _, body in daemon.requests if path == "/containers/create")
    assert body["HostConfig"] == {"NetworkMode": "none"}
    assert body["Image"] == REFERENCE
    assert daemon.asked("DELETE", "/containers/abc") == [{"force": "1", "v": "1"}]


def test_an_image_without_the_package_says_none(daemon: DockerSocket) -> None:
    version_routes(daemon, logs=frames((1, b'{"version": null}\n')))
    assert image_version.main(version_args(daemon), unsaid) == {"version": None}


def test_an_image_without_python_is_a_refusal_and_leaves_no_container(daemon: DockerSocket) -> None:
    version_routes(daemon, logs=b"")
    daemon.routes["POST", "/containers/abc/start"] = (400, {"message": 'exec: "python3": executable file not found'})
    with pytest.raises(Refusal, match="cannot be read out of") as refusal:
        image_version.main(version_args(daemon), unsaid)
    assert "executable file not found" in refusal.value.why
    assert daemon.asked("DELETE", "/containers/abc") == [{"force": "1", "v": "1"}]


def test_python_that_fails_inside_is_quoted(daemon: DockerSocket) -> None:
    version_routes(daemon, logs=frames((2, b"exec format error\n")), status=1)
    with pytest.raises(Refusal) as refusal:
        image_version.main(version_args(daemon), unsaid)
    assert refusal.value.why == "python3 ended with 1: exec format error\n"


def test_a_container_left_by_an_attempt_that_was_cut_off_is_replaced(daemon: DockerSocket) -> None:
    version_routes(daemon, logs=frames((1, b'{"version": "0.5.23"}\n')))

    def create(_request: dict[str, Any]) -> Any:
        left = daemon.asked("DELETE", "/containers/k3deploy-run-version")
        return {"Id": "abc"} if left else (409, {"message": "name in use"})

    daemon.routes["POST", "/containers/create"] = create
    daemon.routes["DELETE", "/containers/k3deploy-run-version"] = (204, b"")
    assert image_version.main(version_args(daemon), unsaid) == {"version": "0.5.23"}


def test_a_refusal_keeps_the_status(daemon: DockerSocket) -> None:
    with pytest.raises(DockerRefused) as refused:
        Dockerd(daemon.path).get("/nothing")
    assert (refused.value.status, refused.value.message) == (404, "no such thing: /nothing")
