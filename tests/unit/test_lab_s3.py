"""The lab's S3 servers: conditional writes hold, and of racing writers exactly one wins."""

import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.lab import ministack, s3

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "lab-bucket"
WRITERS = 12


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    server = s3.serve("127.0.0.1", 0, [BUCKET])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def ministack_url() -> Iterator[str]:
    with ministack.running() as url:
        client(url).create_bucket(Bucket=BUCKET)
        yield url


@pytest.fixture(params=["moto_url", "ministack_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@cache
def client(url: str, writer: int = 0) -> "S3Client":
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id="lab",
        aws_secret_access_key="lab",
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )


def outcome(write: Callable[[], object]) -> str:
    try:
        write()
    except ClientError as error:
        return str(error.response["ResponseMetadata"]["HTTPStatusCode"])
    return "ok"


def test_conditional_writes(url: str) -> None:
    store = client(url)
    assert outcome(lambda: store.put_object(Bucket=BUCKET, Key="k", Body=b"1", IfNoneMatch="*")) == "ok"
    assert outcome(lambda: store.put_object(Bucket=BUCKET, Key="k", Body=b"2", IfNoneMatch="*")) == "412"
    etag = store.head_object(Bucket=BUCKET, Key="k")["ETag"]
    assert outcome(lambda: store.put_object(Bucket=BUCKET, Key="k", Body=b"3", IfMatch=etag)) == "ok"
    assert outcome(lambda: store.put_object(Bucket=BUCKET, Key="k", Body=b"4", IfMatch=etag)) == "412"
    assert store.get_object(Bucket=BUCKET, Key="k")["Body"].read() == b"3"


@pytest.mark.parametrize("is_update", [False, True], ids=["create", "update"])
def test_of_racing_writers_one_wins(url: str, is_update: bool) -> None:
    clients = [client(url, writer) for writer in range(WRITERS)]
    for number in range(5):
        key = f"race-{is_update}-{number}"
        condition = {"IfNoneMatch": "*"}
        if is_update:
            condition = {"IfMatch": clients[0].put_object(Bucket=BUCKET, Key=key, Body=b"first")["ETag"]}
        gate = threading.Barrier(WRITERS)
        outcomes: dict[int, str] = {}

        def write(
            at: int,
            key: str = key,
            condition: dict[str, str] = condition,
            gate: threading.Barrier = gate,
            outcomes: dict[int, str] = outcomes,
        ) -> None:
            gate.wait()
            body = str(at).encode()
            outcomes[at] = outcome(
                lambda: clients[at].put_object(Bucket=BUCKET, Key=key, Body=body, **condition)  # type: ignore[arg-type]
            )

        threads = [threading.Thread(target=write, args=(at,)) for at in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [at for at, result in outcomes.items() if result == "ok"]
        assert len(winners) == 1, outcomes
        assert set(outcomes.values()) <= {"ok", "412", "409"}
        assert clients[0].get_object(Bucket=BUCKET, Key=key)["Body"].read() == str(winners[0]).encode()


def test_keys_are_listed_in_order(url: str) -> None:
    store = client(url)
    for name in ("b", "a", "c/d"):
        store.put_object(Bucket=BUCKET, Key=f"list/{name}", Body=b"")
    found = store.list_objects_v2(Bucket=BUCKET, Prefix="list/")
    assert [each["Key"] for each in found["Contents"]] == ["list/a", "list/b", "list/c/d"]
    assert found["KeyCount"] == 3


@pytest.mark.parametrize("host", ["0.0.0.0", "10.77.0.1"])
def test_ministack_binds_to_loopback_only(host: str, tmp_path: Path) -> None:
    with pytest.raises(ministack.MinistackError, match="is not a loopback address"):
        ministack.environment(host, 4566, tmp_path)


def test_ministack_keeps_away_from_the_machines_docker(tmp_path: Path) -> None:
    env = ministack.environment("127.0.0.1", 4566, tmp_path)
    assert env["BIND_HOST"] == "127.0.0.1"
    assert env["DOCKER_HOST"].startswith(f"unix://{tmp_path}")
    assert env["SERVICES"] == "s3"


def test_ministack_has_a_python_of_its_own() -> None:
    assert ministack.interpreter().parent.parent != Path(sys.prefix)
