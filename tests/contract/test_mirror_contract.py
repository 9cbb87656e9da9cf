"""Mirrors against two independent S3 servers: a node gets addresses that open, and a hole is found before the fetch."""

import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from k3deploy.adapters.mirror import BucketMirror, HubMirror, open_mirror
from k3deploy.adapters.store.s3_client import make_client
from k3deploy.domain.errors import HubError
from k3deploy.domain.names import Commit, Sha256
from k3deploy.domain.weights import Manifest, ManifestFile
from tests.lab import ministack, s3

FILES = {"config.json": b"{}", "model-00001.safetensors": bytes(range(256)) * 16}
MANIFEST = Manifest(
    "moonshotai/Kimi-K3",
    Commit("a" * 40),
    tuple(ManifestFile(path, len(data), Sha256("b" * 64), "c" * 40) for path, data in FILES.items()),
)
SECRET = "a-secret-access-key"


@pytest.fixture(scope="module", params=["moto", "ministack"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "moto":
            moto = s3.serve("127.0.0.1", 0)
            thread = threading.Thread(target=moto.serve_forever, daemon=True)
            thread.start()
            stack.callback(moto.server_close)
            stack.callback(thread.join)
            stack.callback(moto.shutdown)
            yield f"http://127.0.0.1:{moto.port}"
            return
        try:
            yield stack.enter_context(ministack.running())
        except ministack.MinistackError as err:
            pytest.skip(f"no ministack: {err}")


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A bucket of the test's own that holds the files below kimi/<repo>/<commit>."""
    settings = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    name = f"mirror-{abs(hash(request.node.name)) % 10**8}"
    client = make_client(name)
    client.create_bucket(Bucket=name)
    for path, data in FILES.items():
        client.put_object(Bucket=name, Key=f"kimi/{MANIFEST.repo}/{MANIFEST.commit}/{path}", Body=data)
    client.close()
    return name


def _get(url: str, **headers: str) -> tuple[int, bytes]:
    assert url.startswith("http://127.0.0.1:")
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme is checked above
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return answer.status, answer.read()


def test_every_file_has_an_address_that_opens_without_credentials(bucket: str) -> None:
    supply = BucketMirror(f"s3://{bucket}/kimi/{{repo}}/{{commit}}").supply(MANIFEST)
    assert supply.origin == "urls"
    assert dict(supply.environment) == {}
    text = supply.secrets["urls"].reveal()
    assert SECRET not in text
    urls = json.loads(text)
    assert list(urls) == list(FILES)
    for path, data in FILES.items():
        assert _get(urls[path]) == (200, data)


def test_a_part_of_a_file_can_be_asked_for(bucket: str) -> None:
    urls = json.loads(BucketMirror(f"s3://{bucket}/kimi/{{repo}}/{{commit}}").supply(MANIFEST).secrets["urls"].reveal())
    answer = _get(urls["model-00001.safetensors"], Range="bytes=4000-")
    assert answer == (206, FILES["model-00001.safetensors"][4000:])


def test_a_plain_prefix_is_the_folder_itself(bucket: str) -> None:
    place = f"s3://{bucket}/kimi/{MANIFEST.repo}/{MANIFEST.commit}/"
    assert BucketMirror(place).supply(MANIFEST).origin == "urls"


def test_a_file_that_is_missing_or_short_is_found_before_anything_is_fetched(bucket: str) -> None:
    client = make_client(bucket)
    client.put_object(Bucket=bucket, Key=f"kimi/{MANIFEST.repo}/{MANIFEST.commit}/config.json", Body=b"{")
    client.close()
    with pytest.raises(HubError, match="is not complete: 1 of 2 files") as caught:
        BucketMirror(f"s3://{bucket}/kimi/{{repo}}/{{commit}}").supply(MANIFEST)
    assert caught.value.why == "first config.json: 1 bytes, wanted 2 bytes"
    with pytest.raises(HubError, match="is not complete: 2 of 2 files") as caught:
        BucketMirror(f"s3://{bucket}/elsewhere").supply(MANIFEST)
    assert caught.value.why == "first config.json: absent, wanted 2 bytes"
    with pytest.raises(HubError, match="is not complete: 2 of 2 files") as caught:
        BucketMirror(f"s3://{bucket}/{{branch}}").supply(MANIFEST)
    assert caught.value.context["found"] == f"s3://{bucket}/{{branch}}/"


def test_a_bucket_that_is_not_there_is_an_error_with_a_fix(bucket: str) -> None:
    with pytest.raises(HubError, match="cannot be used") as caught:
        BucketMirror(f"s3://{bucket}-none/x").supply(MANIFEST)
    assert "NoSuchBucket" in caught.value.why
    assert "AWS_ENDPOINT_URL" in caught.value.fix


def test_a_server_that_speaks_as_the_hub_does_gets_no_token() -> None:
    mirror = open_mirror("https://hub.example/")
    assert isinstance(mirror, HubMirror)
    supply = mirror.supply(MANIFEST)
    assert dict(supply.environment) == {"HF_ENDPOINT": "https://hub.example"}
    assert dict(supply.secrets) == {}


def test_no_mirror_is_no_mirror() -> None:
    assert open_mirror(None) is None
