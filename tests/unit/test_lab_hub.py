"""The lab's Hub against the real huggingface_hub client, and its faults against what that client is known to do."""

import hashlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.lab import checkpoint, hub
from tests.lab.hub_files import Repositories

SHARD = "model-00002-of-000012.safetensors"
REPO = checkpoint.REPO


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    checkpoint.build(folder, "small12")
    return folder


@pytest.fixture
def server(root: Path, tmp_path: Path) -> Iterator[hub.Hub]:
    found, stop = hub.start(root, log=tmp_path / "hub.log")
    yield found
    stop()


@pytest.fixture
def url(server: hub.Hub) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def api(url: str) -> HfApi:
    return HfApi(endpoint=url, token=False)


def call(server: hub.Hub, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, Any]:
    """Status, headers and body, parsed where it is JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    try:
        data = json.dumps(body) if body is not None else None
        connection.request(method, path, data, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        text = response.read()
        is_json = "json" in (response.headers.get("Content-Type") or "") and bool(text)
        return response.status, response.headers, json.loads(text) if is_json else text
    finally:
        connection.close()


def fault(server: hub.Hub, *rules: dict[str, Any], **switches: Any) -> None:
    assert call(server, "POST", "/__lab__/faults", {"rules": list(rules), **switches})[0] == 200


def fetch(api: HfApi, cache: Path, name: str = SHARD) -> Path:
    return Path(api.hf_hub_download(REPO, name, cache_dir=cache))


def logged(log: Path, count: int) -> list[dict[str, Any]]:
    """The log's entries; each is written when its answer has gone out, so the last one may be a moment late."""
    deadline = time.monotonic() + 10
    while len(lines := log.read_text().splitlines()) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(lines) == count, lines
    return [json.loads(line) for line in lines]


def is_whole(path: Path) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == path.resolve().name


def test_tells_the_manifest(api: HfApi) -> None:
    expected = checkpoint.expected("small12")
    info = api.model_info(REPO, files_metadata=True)
    assert info.sha == expected.commit
    assert info.siblings is not None
    assert (len(info.siblings), sum(each.size or 0 for each in info.siblings)) == (
        expected.files,
        expected.total_bytes,
    )
    assert {each.rfilename for each in info.siblings if each.lfs} == {
        "tiktoken.model",
        *(f"model-{number:05d}-of-000012.safetensors" for number in range(1, 13)),
    }


def test_digests_are_those_of_git_and_of_the_bytes(api: HfApi, root: Path) -> None:
    entries = {each.path: each for each in api.list_repo_tree(REPO, recursive=True)}
    data = (root / REPO / "config.json").read_bytes()
    digest = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    assert entries["config.json"].blob_id == digest  # type: ignore[union-attr]
    shard = entries[SHARD].lfs  # type: ignore[union-attr]
    assert shard is not None
    assert shard.sha256 == hashlib.sha256((root / REPO / SHARD).read_bytes()).hexdigest()


def test_without_blobs_there_are_names_only(server: hub.Hub) -> None:
    found = call(server, "GET", f"/api/models/{REPO}")[2]
    assert {frozenset(each) for each in found["siblings"]} == {frozenset({"rfilename"})}


def test_the_client_downloads_everything(url: str, tmp_path: Path) -> None:
    program = "import huggingface_hub, sys; print(huggingface_hub.snapshot_download(sys.argv[1], max_workers=4))"
    env = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    env.pop("HF_TOKEN", None)
    done = subprocess.run([sys.executable, "-c", program, REPO], env=env, capture_output=True, text=True, check=True)
    snapshot = Path(done.stdout.strip())
    assert snapshot.name == checkpoint.expected("small12").commit
    files = [path for path in snapshot.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) == checkpoint.expected("small12").total_bytes
    assert all(is_whole(path) for path in snapshot.glob("*.safetensors"))


def test_a_range_is_answered_in_part(server: hub.Hub, root: Path) -> None:
    path = f"/{REPO}/resolve/main/{SHARD}"
    data = (root / REPO / SHARD).read_bytes()
    status, headers, part = call(server, "GET", path, Range="bytes=100-199")
    assert (status, headers["Content-Range"], part) == (206, f"bytes 100-199/{len(data)}", data[100:200])
    assert call(server, "GET", path, Range="bytes=-10")[2] == data[-10:]
    assert call(server, "GET", path, Range=f"bytes={len(data)}-")[0] == 416
    status, headers, nothing = call(server, "HEAD", path)
    assert (status, int(headers["Content-Length"]), nothing) == (200, len(data), b"")
    assert headers["X-Linked-Size"] == str(len(data))
    assert headers["ETag"] == headers["X-Linked-ETag"] == f'"{hashlib.sha256(data).hexdigest()}"'
    assert headers["X-Repo-Commit"] == checkpoint.expected("small12").commit


@pytest.mark.parametrize("name", ["../Kimi-K3-mini.lab.json", "%2e%2e/%2e%2e/etc/passwd", "nope.txt"])
def test_serves_nothing_else(server: hub.Hub, name: str) -> None:
    status, headers, _ = call(server, "GET", f"/{REPO}/resolve/main/{name}")
    assert (status, headers["X-Error-Code"]) == (404, "EntryNotFound")


def test_errors_are_the_clients_exceptions(api: HfApi, tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("lab/none")
    with pytest.raises(RevisionNotFoundError):
        api.model_info(REPO, revision="b" * 40)
    with pytest.raises(RemoteEntryNotFoundError):
        fetch(api, tmp_path, "nope.txt")


def test_a_bad_token_is_refused_even_for_public_files(url: str) -> None:
    with pytest.raises(HfHubHTTPError, match="401") as refused:
        HfApi(endpoint=url, token="hf_bad").model_info(REPO)
    assert not isinstance(refused.value, RepositoryNotFoundError)
    assert HfApi(endpoint=url, token="hf_fine").model_info(REPO).id == REPO


def test_a_gated_repository_needs_a_token_with_access(server: hub.Hub, url: str, api: HfApi, tmp_path: Path) -> None:
    fault(server, gated=True)
    for token in (False, "hf_noaccess"):
        with pytest.raises(GatedRepoError):
            HfApi(endpoint=url, token=token).get_hf_file_metadata(url=f"{url}/{REPO}/resolve/main/{SHARD}")
    assert is_whole(fetch(HfApi(endpoint=url, token="hf_fine"), tmp_path))


def test_a_private_repository_is_not_found_without_a_token(server: hub.Hub, url: str, api: HfApi) -> None:
    fault(server, require_token=True)
    with pytest.raises(RepositoryNotFoundError):
        api.model_info(REPO)
    assert HfApi(endpoint=url, token="hf_fine").model_info(REPO).private


def test_a_cut_stream_is_resumed(server: hub.Hub, api: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)  # what counts as delivered; our shards are small
    fault(server, {"kind": "cut", "after_bytes": 30_000, "times": 2, "match": "*.safetensors"})
    assert is_whole(fetch(api, tmp_path))
    ranges = [entry["range"] for entry in logged(tmp_path / "hub.log", 4)]
    assert ranges == [None, None, "bytes=30000-", "bytes=60000-"]


def test_a_reset_ends_the_download(server: hub.Hub, api: HfApi, tmp_path: Path) -> None:
    fault(server, {"kind": "cut", "after_bytes": 30_000, "reset": True, "match": "*.safetensors"})
    with pytest.raises(Exception, match=r"(?i)reset|peer|closed"):
        fetch(api, tmp_path)


def test_too_many_requests_are_waited_for(server: hub.Hub, api: HfApi, tmp_path: Path) -> None:
    rule = {"kind": "status", "code": 429, "retry_after": 0, "times": 1, "method": "GET", "match": SHARD}
    fault(server, rule)
    assert is_whole(fetch(api, tmp_path))
    assert call(server, "GET", "/__lab__/faults")[2]["rules"] == [{**rule, "times": 0}]


def test_an_unavailable_service_is_not_retried(server: hub.Hub, api: HfApi, tmp_path: Path) -> None:
    fault(server, {"kind": "status", "code": 503, "times": 1, "method": "GET", "match": SHARD})
    with pytest.raises(HfHubHTTPError, match="503"):
        fetch(api, tmp_path)
    assert is_whole(fetch(api, tmp_path))


def test_wrong_bytes_of_the_right_length_pass(server: hub.Hub, api: HfApi, root: Path, tmp_path: Path) -> None:
    fault(server, {"kind": "corrupt", "match": SHARD})
    got = fetch(api, tmp_path)
    want = (root / REPO / SHARD).read_bytes()
    assert not is_whole(got)
    differing = [at for at, (a, b) in enumerate(zip(got.read_bytes(), want, strict=True)) if a != b]
    assert differing == [len(want) // 2]


def test_a_slow_link_is_slow_for_its_client_only(server: hub.Hub, api: HfApi, tmp_path: Path) -> None:
    fault(server, {"kind": "slow", "bytes_per_s": 1, "client": "192.0.2.1"}, {"kind": "drop", "client": "192.0.2.1"})
    assert is_whole(fetch(api, tmp_path))


def test_a_slow_link_gives_all_bytes(server: hub.Hub, api: HfApi, tmp_path: Path) -> None:
    fault(server, {"kind": "slow", "bytes_per_s": 1_000_000})
    assert is_whole(fetch(api, tmp_path))


def test_large_files_may_be_elsewhere(server: hub.Hub, api: HfApi, tmp_path: Path) -> None:
    fault(server, redirect=True)
    assert is_whole(fetch(api, tmp_path))
    assert "/__cdn__/" in (tmp_path / "hub.log").read_text()


def test_the_branch_may_move(server: hub.Hub, api: HfApi) -> None:
    fault(server, main="c" * 40)
    assert api.model_info(REPO).sha == "c" * 40
    old = checkpoint.expected("small12").commit
    assert api.model_info(REPO, revision=old).sha == old


def test_counts_by_file_and_by_client(server: hub.Hub, api: HfApi, root: Path, tmp_path: Path) -> None:
    fetch(api, tmp_path)
    stats = call(server, "GET", "/__lab__/stats")[2]
    size = (root / REPO / SHARD).stat().st_size
    assert stats["files"][SHARD] == {"requests": 2, "bytes": size}
    assert stats["clients"]["127.0.0.1"]["bytes"] == stats["bytes"] == size
    assert stats["shares"] == {SHARD: {"127.0.0.1": size}}
    assert call(server, "DELETE", "/__lab__/stats")[0] == 200
    assert call(server, "GET", "/__lab__/stats")[2]["requests"] == 0


def test_tokens_are_not_logged(server: hub.Hub, url: str, tmp_path: Path) -> None:
    HfApi(endpoint=url, token="hf_very_secret").model_info(REPO)
    assert [entry["token"] for entry in logged(tmp_path / "hub.log", 1)] == [True]
    assert "hf_very_secret" not in (tmp_path / "hub.log").read_text()


@pytest.mark.parametrize("told", [{"rule": []}, {"rules": [{"kind": "explode"}]}])
def test_faults_it_does_not_know_are_refused(server: hub.Hub, told: object) -> None:
    fault(server, gated=True)
    assert call(server, "POST", "/__lab__/faults", told)[0] == 400
    assert call(server, "GET", "/__lab__/faults")[2] == {"gated": True, "rules": []}
    assert call(server, "POST", "/__lab__/faults", {})[2] == {"rules": []}


def test_no_file_is_hashed_twice(tmp_path: Path) -> None:
    checkpoint.build(tmp_path, "small12")
    first = Repositories(tmp_path).files(REPO)
    for name, file in first.items():
        if file.sha256 is not None:  # other bytes that look untouched: whoever hashes them finds another digest
            times = file.path.stat()
            file.path.write_bytes(bytes(file.size))
            os.utime(file.path, ns=(times.st_atime_ns, times.st_mtime_ns))
            assert hashlib.sha256(bytes(file.size)).hexdigest() != file.sha256, name
    again = Repositories(tmp_path)
    again.warm()
    assert len(first) == checkpoint.expected("small12").files
    assert again.files(REPO) == first
    (tmp_path / REPO / "config.json").write_text("{}")
    assert again.files(REPO)["config.json"].size == 2


def test_health_and_whoami(server: hub.Hub, url: str) -> None:
    assert call(server, "GET", "/__lab__/health")[0] == 200
    assert HfApi(endpoint=url, token="hf_fine").whoami()["name"] == "lab"
    assert call(server, "GET", "/api/whoami-v2")[0] == 401
