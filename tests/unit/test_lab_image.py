"""The engine's image: pushed over the registry's API, read back over it, and with the program the tests test inside."""

import hashlib
import http.client
import io
import json
import platform
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.lab import image
from tests.lab.engine_process import free_port

PACKAGES = "usr/lib/python3/dist-packages"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Debian's docker-registry on a loopback port."""
    folder = tmp_path_factory.mktemp("registry")
    port = free_port()
    config = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (folder / "config.yml").write_text(json.dumps(config))
    process = subprocess.Popen(
        ["docker-registry", "serve", str(folder / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(OSError):
                if get(port, "/v2/")[0] == 200:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tar in place of the real base, which takes a minute to make."""
    path = tmp_path_factory.mktemp("root") / "root.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("etc/os-release")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"lab"))
    return path


@pytest.fixture(scope="module")
def pushed(registry: int, rootfs: Path) -> dict[str, str]:
    return image.push_all(f"http://127.0.0.1:{registry}", rootfs)


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        accept = "application/vnd.docker.distribution.manifest.v2+json"
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def blob(port: int, digest: str) -> bytes:
    status, data = get(port, f"/v2/{image.REPOSITORY}/blobs/{digest}")
    assert status == 200
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
    return data


def pulled(port: int, tag: str) -> tuple[dict[str, Any], list[tarfile.TarFile], str]:
    """Configuration, layers and digest of a tag."""
    status, text = get(port, f"/v2/{image.REPOSITORY}/manifests/{tag}")
    assert status == 200
    manifest = json.loads(text)
    config = json.loads(blob(port, manifest["config"]["digest"]))
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    layers = [tarfile.open(fileobj=io.BytesIO(blob(port, layer["digest"]))) for layer in manifest["layers"]]  # noqa: SIM115  closed with the memory they are in
    return config, layers, f"sha256:{hashlib.sha256(text).hexdigest()}"


def member(layer: tarfile.TarFile, name: str) -> bytes:
    file = layer.extractfile(name)
    assert file is not None
    return file.read()


def test_every_tag_is_there_under_the_digest_it_was_given(registry: int, pushed: dict[str, str]) -> None:
    tags = json.loads(get(registry, f"/v2/{image.REPOSITORY}/tags/list")[1])["tags"]
    assert sorted(tags) == sorted(pushed)
    assert sorted(pushed) == ["kimi-k3-lab", "kimi-k3-lab-0.5.18", "kimi-k3-lab-arm64", "kimi-k3-lab-unlisted"]
    for tag, digest in pushed.items():
        assert pulled(registry, tag)[2] == digest
    assert len(set(pushed.values())) == len(pushed)


def test_a_second_push_changes_nothing(registry: int, rootfs: Path, pushed: dict[str, str]) -> None:
    assert image.push_all(f"127.0.0.1:{registry}", rootfs) == pushed


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("kimi-k3-lab", "0.5.23"),
        ("kimi-k3-lab-arm64", "0.5.23"),
        ("kimi-k3-lab-0.5.18", "0.5.18"),
        ("kimi-k3-lab-unlisted", "0.5.99"),
    ],
)
def test_the_release_is_in_the_package_metadata(registry: int, pushed: dict[str, str], tag: str, version: str) -> None:
    layers = pulled(registry, tag)[1]
    metadata = member(layers[2], f"{PACKAGES}/sglang-{version}.dist-info/METADATA").decode()
    assert f"Name: sglang\nVersion: {version}\n" in metadata


def test_one_tag_is_for_another_architecture(registry: int, pushed: dict[str, str]) -> None:
    here = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    found = {tag: pulled(registry, tag)[0]["architecture"] for tag in pushed}
    assert found.pop("kimi-k3-lab-arm64") != here
    assert set(found.values()) == {here}


def test_the_program_inside_is_the_one_tested_here(registry: int, pushed: dict[str, str]) -> None:
    layer = pulled(registry, "kimi-k3-lab")[1][1]
    engine = Path(image.__file__).parent / "engine"
    for path in engine.glob("*.py"):
        assert member(layer, f"{PACKAGES}/sglang/{path.name}") == path.read_bytes()
    assert json.loads(member(layer, f"{PACKAGES}/sglang/data/flags.json"))["meta"]["count"] == 531
    assert layer.getmember("usr/local/bin/sglang").mode == 0o755
    assert "__pycache__" not in " ".join(layer.getnames())


def test_the_layer_runs_on_its_own(tmp_path: Path) -> None:
    """As in the image: only a standard library, the package found by its own name and release."""
    for data in (image.engine_layer(), image.release_layer("0.5.23")):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(tmp_path, filter="data")
    packages = tmp_path / PACKAGES
    env = {"PYTHONPATH": str(packages), "NVIDIA_VISIBLE_DEVICES": "all", "HF_HOME": str(tmp_path)}
    question = "import importlib.metadata; print(importlib.metadata.version('sglang'))"

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-s", "-S", *arguments]
        return subprocess.run(command, env=env | more, capture_output=True, text=True, check=False)

    assert run("-c", question).stdout == "0.5.23\n"
    assert run("-m", "sglang.cli", "version").stdout == "sglang version: 0.5.23\n"
    refused = run("-m", "sglang.launch_server", "--model-path", "m", "--pp", "2")
    assert refused.returncode == 2
    assert "sglang serve: error: ambiguous option: --pp" in refused.stderr
    no_gpus = run("-m", "sglang.launch_server", "--model-path", "m", NVIDIA_VISIBLE_DEVICES="void")
    assert (no_gpus.returncode, "Found no NVIDIA driver on your system" in no_gpus.stderr) == (1, True)


def test_layers_are_the_same_bytes_each_time() -> None:
    assert image.engine_layer() == image.engine_layer()
    assert image.release_layer("0.5.23") != image.release_layer("0.5.23", is_foreign=True)


def test_the_foreign_program_can_not_run_here(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(image.release_layer("0.5.23", is_foreign=True))) as archive:
        archive.extractall(tmp_path, filter="data")
    with pytest.raises(OSError, match="Exec format error"):
        subprocess.run([str(tmp_path / "usr/local/bin/sglang")], check=False)
