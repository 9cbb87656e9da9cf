"""What every Hub does: the fake one, and huggingface_hub against a server that speaks like the real one."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k3deploy.adapters.hub.client import HuggingFace
from k3deploy.contracts import Hub
from k3deploy.domain.command import Secret
from k3deploy.domain.errors import HubError
from k3deploy.domain.names import Commit, Sha256
from k3deploy.domain.weights import Manifest, ManifestFile
from k3deploy.testing import FakeHub
from tests.lab import hub as lab_hub

REPO = "lab/Mini"
COMMIT = hashlib.sha1(REPO.encode(), usedforsecurity=False).hexdigest()
SHARD = b"x" * 1000
CONFIG = b'{"model_type": "kimi_k3"}\n'


def git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def pointer(data: bytes) -> str:
    """A large file's blob in git is the pointer to it."""
    text = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashlib.sha256(data).hexdigest()}\nsize {len(data)}\n"
    )
    return git_blob(text.encode())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab_hub.Hub]:
    root = tmp_path_factory.mktemp("hub")
    folder = root / REPO
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "model-00001-of-000001.safetensors").write_bytes(SHARD)
    running, stop = lab_hub.start(root)
    yield running
    stop()


@pytest.fixture(autouse=True)
def no_faults(server: lab_hub.Hub) -> None:
    server.faults.replace({})


def client(
    server: lab_hub.Hub,
    env: Mapping[str, str] | None = None,
    *,
    login: str | None = None,
    slept: list[float] | None = None,
) -> HuggingFace:
    environment = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}", **(env or {})}
    return HuggingFace(environment, read_login=lambda: login, sleep=(slept if slept is not None else []).append)


def wanted() -> Manifest:
    """By hand: what git and its large-file storage call these two files."""
    return Manifest(
        REPO,
        Commit(COMMIT),
        (
            ManifestFile("config.json", len(CONFIG), None, git_blob(CONFIG)),
            ManifestFile(
                "model-00001-of-000001.safetensors",
                len(SHARD),
                Sha256(hashlib.sha256(SHARD).hexdigest()),
                pointer(SHARD),
            ),
        ),
    )


@pytest.fixture(params=["fake", "real"])
def hub(request: pytest.FixtureRequest, server: lab_hub.Hub) -> Hub:
    return FakeHub(wanted()) if request.param == "fake" else client(server)


@pytest.mark.parametrize("revision", ["main", COMMIT])
def test_a_manifest_has_every_file_with_size_and_digest(hub: Hub, revision: str) -> None:
    found = hub.manifest(REPO, revision)
    files = {file.path: (file.size_bytes, file.sha256) for file in found.files}
    assert (found.repo, found.commit) == (REPO, COMMIT)
    assert files == {file.path: (file.size_bytes, file.sha256) for file in wanted().files}
    assert found.shard_bytes == 1000


@pytest.mark.parametrize(("repo", "revision"), [(REPO, "f" * 40), ("lab/None", "main")])
def test_what_is_not_there_is_an_error_with_its_name(hub: Hub, repo: str, revision: str) -> None:
    with pytest.raises(HubError) as caught:
        hub.manifest(repo, revision)
    assert caught.value.context["repo"] == repo
    assert caught.value.context["revision"] == revision
    assert "profile" in caught.value.fix


def test_no_token_is_none(hub: Hub) -> None:
    assert hub.token() is None


def test_small_files_have_their_git_blob(server: lab_hub.Hub) -> None:
    assert client(server).manifest(REPO, "main").files[0].git_blob_id == git_blob(CONFIG)


def test_one_request_is_enough(server: lab_hub.Hub) -> None:
    server.stats.reset()
    client(server).manifest(REPO, COMMIT)
    assert server.stats.document()["requests"] == 1


def test_the_token_is_a_secret_from_the_environment_or_a_login(server: lab_hub.Hub) -> None:
    assert client(server, {"HF_TOKEN": " hf_one\n"}, login="hf_two").token() == Secret("hf_one")
    assert client(server, login="hf_two").token() == Secret("hf_two")
    assert client(server, {"HF_TOKEN": ""}, login=None).token() is None
    assert repr(client(server, {"HF_TOKEN": "hf_one"}).token()) == "***"


def test_a_token_file_is_read_as_huggingface_hub_reads_it(tmp_path: Path) -> None:
    """HF_TOKEN_PATH is read when huggingface_hub is imported, hence a process of its own."""
    (tmp_path / "token").write_text("hf_from_file\n")
    code = "from k3deploy.adapters.hub.client import HuggingFace; print(HuggingFace().token().reveal())"
    env = {**os.environ, "HF_TOKEN_PATH": str(tmp_path / "token"), "HF_HOME": str(tmp_path)}
    env.pop("HF_TOKEN", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "hf_from_file\n"


def test_nodes_get_the_endpoint_and_nothing_else() -> None:
    def of(**env: str) -> Mapping[str, str]:
        return HuggingFace(env, read_login=lambda: None).node_environment()

    assert of(HF_TOKEN="hf_x") == {}
    assert of(HF_ENDPOINT="https://hub.example/", HF_TOKEN="hf_x") == {"HF_ENDPOINT": "https://hub.example"}


@pytest.mark.parametrize("url", ["hub.example", "ftp://hub.example", "https://", "https://me:secret@hub.example"])
def test_an_endpoint_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(HubError) as caught:
        HuggingFace({"HF_ENDPOINT": url}, read_login=lambda: None).node_environment()
    assert "secret" not in str(caught.value.as_dict())


GATED = {"gated": True}
BUSY = {"rules": [{"kind": "status", "code": 429, "retry_after": 1}]}
TROUBLE: list[tuple[dict[str, Any], dict[str, str], str, str]] = [
    (GATED, {}, "lab/Mini is gated, and this account may not read it", "hf auth login"),
    (GATED, {"HF_TOKEN": "hf_noaccess"}, "lab/Mini is gated, and this account may not read it", "ask for access"),
    ({}, {"HF_TOKEN": "hf_bad"}, "the hub does not accept this token", "unset HF_TOKEN"),
    ({"require_token": True}, {}, "the hub shows no repository lab/Mini", "hf auth login"),
    (BUSY, {}, "the hub answers no more requests from here for now", "wait five minutes"),
    ({"rules": [{"kind": "status", "code": 503}]}, {}, "the hub answered HTTP 503", "status.huggingface.co"),
    ({"rules": [{"kind": "drop"}]}, {}, "the hub cannot be reached", "HF_ENDPOINT"),
]


@pytest.mark.parametrize(("faults", "env", "what", "fix"), TROUBLE)
def test_trouble_is_told_with_the_way_out(
    server: lab_hub.Hub, faults: dict[str, Any], env: dict[str, str], what: str, fix: str
) -> None:
    server.faults.replace(faults)
    with pytest.raises(HubError) as caught:
        client(server, env).manifest(REPO, "main")
    assert caught.value.what == what
    assert fix in caught.value.fix
    assert "hf_" not in str(caught.value.as_dict())


@pytest.mark.parametrize("old", ["lab/Tiny", "lab/mini"])
def test_a_renamed_repository_is_told_with_its_new_name(server: lab_hub.Hub, old: str) -> None:
    server.faults.replace({"renamed": {"from": old, "to": REPO}})
    with pytest.raises(HubError) as caught:
        client(server).manifest(old, "main")
    assert caught.value.what == f"{old} is called lab/Mini now"
    assert caught.value.fix == "set model.repo to lab/Mini in the profile"


@pytest.mark.parametrize("path", ["../../x", "/etc/passwd", "a\n\x1b[2Jb"])
def test_a_list_that_would_lead_out_of_the_cache_is_refused(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    sibling = SimpleNamespace(rfilename=path, size=1, blob_id="b" * 40, lfs=None)
    info = SimpleNamespace(id=REPO, sha=COMMIT, siblings=[sibling], gated=False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: info)
    with pytest.raises(HubError, match="the hub lists what no repository can have: the path"):
        HuggingFace({}, read_login=lambda: None).manifest(REPO, COMMIT)


def test_whoever_may_read_a_gated_repository_gets_it(server: lab_hub.Hub) -> None:
    server.faults.replace(GATED)
    assert client(server, {"HF_TOKEN": "hf_good"}).manifest(REPO, "main").commit == COMMIT


def test_short_trouble_is_sat_out(server: lab_hub.Hub) -> None:
    """429 waits as long as told and a second more; a server error, a second."""
    slept: list[float] = []
    rules = [{"kind": "status", "code": 429, "retry_after": 3, "times": 1}, {"kind": "status", "code": 503, "times": 1}]
    server.faults.replace({"rules": rules})
    assert client(server, slept=slept).manifest(REPO, "main").commit == COMMIT
    assert slept == [4.0, 2.0]


def test_a_long_wait_is_left_to_the_person(server: lab_hub.Hub) -> None:
    slept: list[float] = []
    server.faults.replace({"rules": [{"kind": "status", "code": 429, "retry_after": 300}]})
    with pytest.raises(HubError):
        client(server, slept=slept).manifest(REPO, "main")
    assert slept == []


def test_a_hub_that_is_not_there_is_told() -> None:
    hub = HuggingFace({"HF_ENDPOINT": "http://127.0.0.1:9"}, read_login=lambda: None)
    with pytest.raises(HubError, match="the hub cannot be reached"):
        hub.manifest(REPO, "main")


def test_importing_the_adapter_does_not_import_huggingface_hub() -> None:
    code = "import k3deploy.adapters.hub.client, sys; print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
