"""S3 servers that say no, each in a way seen in the field, and what the person at the keyboard is told."""

import email.utils
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from k3deploy.adapters.store.s3 import S3Store
from k3deploy.domain.errors import StoreConflict, StoreError

ETAG = {"ETag": '"0123456789abcdef"'}


@dataclass
class Reply:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: ETAG)
    body: bytes = b""
    drops: bool = False  # close the connection instead, after the request has taken effect


def no(status: int, code: str, message: str = "", extra: str = "", **headers: str) -> Reply:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message>{extra}</Error>"
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"Content-Type": "application/xml", **names}, body.encode())


@dataclass
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Stub(ThreadingHTTPServer):
    """Answers what it was told, in turn; the last reply from then on."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[Reply | Callable[[Asked], Reply]] = []
        self.asked: list[Asked] = []

    def says(self, *replies: Reply | Callable[[Asked], Reply]) -> None:
        self.replies = list(replies)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.server.asked.append(asked)
        replies = self.server.replies
        told = replies.pop(0) if len(replies) > 1 else replies[0]
        reply = told if isinstance(told, Reply) else told(asked)
        if reply.drops:
            self.close_connection = True
            return
        self.send_response_only(reply.status)
        headers = {"Date": email.utils.formatdate(usegmt=True), **reply.headers, "Content-Length": str(len(reply.body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_PUT = do_DELETE = do_HEAD = answer  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    stub = Stub()
    thread = threading.Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{stub.server_address[1]}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield stub
    stub.shutdown()
    thread.join()
    stub.server_close()


@pytest.fixture
def store(stub: Stub) -> S3Store:
    return S3Store("k3.state", "runs")


def refused(use: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        use()
    return caught.value


def test_other_servers_get_no_checksum_headers_and_path_style(stub: Stub, store: S3Store) -> None:
    """F-057, F-061: a server that knows no CRC headers, a bucket with a dot."""
    stub.says(Reply())
    assert store.put("a", b"data") == "0123456789abcdef"
    asked = stub.asked[0]
    assert (asked.method, asked.path, asked.body) == ("PUT", "/k3.state/runs/a", b"data")
    assert not [name for name in asked.headers if "checksum" in name or "crc" in name]


def test_the_tag_is_sent_without_quotes(stub: Stub, store: S3Store) -> None:
    """As radosgw 18 insists on."""
    stub.says(Reply())
    store.put_if_match("a", b"data", '"0123456789abcdef"')
    store.put_if_match("a", b"data", "0123456789abcdef")
    assert [asked.headers["if-match"] for asked in stub.asked] == ["0123456789abcdef"] * 2
    store.put_if_absent("a", b"data")
    assert stub.asked[-1].headers["if-none-match"] == "*"


def test_an_endpoint_that_names_the_bucket_is_refused_before_any_request(
    stub: Stub, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("http://k3.state.objects.example:9000", f"http://127.0.0.1:{stub.server_address[1]}/k3.state"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        error = refused(lambda: store.get("a"))
        assert error.what == f"the S3 endpoint {url} contains the bucket's name"
    assert stub.asked == []


def test_a_wrong_clock_is_measured(stub: Stub, store: S3Store) -> None:
    """F-058: the server is 1000 s ahead, so this machine is behind."""

    def ahead(_asked: Asked) -> Reply:
        return no(403, "RequestTimeTooSkewed", Date=email.utils.formatdate(time.time() + 1000, usegmt=True))

    stub.says(ahead)
    error = refused(lambda: store.put("a", b""))
    shown = re.fullmatch(r"this machine's clock is (\d+) min (\d+) s behind the store's", error.what)
    assert shown is not None
    # A slow machine takes its time from the answer to the message: so much less is the difference.
    assert 1000 - 60 <= int(shown[1]) * 60 + int(shown[2]) <= 1001


def test_credentials_that_expired_are_read_anew(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-059: somebody renewed them in the file while the run went on."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    credentials = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = s\naws_session_token = t\n"
    credentials.write_text(text.format("OLD"))

    def check(asked: Asked) -> Reply:
        return Reply() if "Credential=NEW/" in asked.headers["authorization"] else no(400, "ExpiredToken")

    stub.says(check)
    store = S3Store("k3.state", "runs")
    assert refused(lambda: store.put("a", b"")).what == "the S3 credentials have expired"
    credentials.write_text(text.format("NEW"))
    store.put("a", b"")
    stub.says(no(400, "ExpiredToken"), Reply())
    store.put("a", b"")


@pytest.mark.parametrize(
    "reply",
    [
        no(400, "AuthorizationHeaderMalformed", "expecting 'eu-nl-1'", "<Region>eu-nl-1</Region>"),
        no(301, "PermanentRedirect", x_amz_bucket_region="eu-nl-1"),
    ],
)
def test_a_bucket_elsewhere_is_told_with_its_region(stub: Stub, store: S3Store, reply: Reply) -> None:
    """F-060."""
    stub.says(reply)
    error = refused(lambda: store.put("a", b""))
    assert error.what == "bucket k3.state is in another region: eu-nl-1"
    assert error.fix == "export AWS_REGION=eu-nl-1"


def test_a_region_that_cannot_be_one_is_refused_before_any_request(
    stub: Stub, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us_east_1")
    monkeypatch.delenv("AWS_REGION")
    assert refused(lambda: store.get("a")).what == "the S3 region is not usable"
    assert stub.asked == []


def test_a_write_under_way_is_tried_again(stub: Stub, store: S3Store) -> None:
    """F-063: 409 is no conflict, by S3's own words."""
    stub.says(no(409, "ConditionalRequestConflict"), Reply())
    assert store.put_if_absent("a", b"") == "0123456789abcdef"
    assert len(stub.asked) == 2


def test_a_conflict_is_not_tried_again(stub: Stub, store: S3Store) -> None:
    stub.says(no(412, "PreconditionFailed"))
    with pytest.raises(StoreConflict):
        store.put_if_absent("a", b"")
    assert len(stub.asked) == 1


def test_a_write_that_is_always_under_way_is_given_up_and_is_no_conflict(stub: Stub, store: S3Store) -> None:
    stub.says(no(409, "ConditionalRequestConflict"))
    error = refused(lambda: store.put_if_match("a", b"", "tag"))
    assert not isinstance(error, StoreConflict)
    assert len(stub.asked) == 5


def test_a_match_with_nothing_there_is_a_conflict(stub: Stub, store: S3Store) -> None:
    """Amazon answers 404 here, others 412."""
    stub.says(no(404, "NoSuchKey"))
    with pytest.raises(StoreConflict):
        store.put_if_match("a", b"", "tag")


def test_our_own_write_whose_answer_was_lost_is_no_conflict(stub: Stub, store: S3Store) -> None:
    """The first request took effect and the answer got lost: botocore repeats it, and meets its own object."""
    stub.says(Reply(drops=True), no(412, "PreconditionFailed"), Reply(body=b"mine"))
    assert store.put_if_absent("a", b"mine") == "0123456789abcdef"
    stub.says(Reply(drops=True), no(412, "PreconditionFailed"), Reply(body=b"another's"))
    with pytest.raises(StoreConflict):
        store.put_if_absent("a", b"mine")


@pytest.mark.parametrize("use", ["get", "put"])
def test_forbidden_is_neither_absent_nor_new(stub: Stub, store: S3Store, use: str) -> None:
    """F-064: without leave to list, S3 answers 403 for keys that do not exist."""
    stub.says(no(403, "AccessDenied"))
    error = refused(lambda: store.get("r7/state.json") if use == "get" else store.put("r7/state.json", b""))
    assert error.what.endswith("r7/state.json in the store: access denied")
    assert "nothing is assumed" in error.why
    assert "s3:ListBucket" in error.fix


def test_only_a_missing_key_is_absent(stub: Stub, store: S3Store) -> None:
    stub.says(no(404, "NoSuchKey"))
    assert store.get("a") is None
    stub.says(no(404, "NoSuchBucket"))
    assert refused(lambda: store.get("a")).what == "there is no bucket k3.state"
    assert refused(lambda: store.put_if_match("a", b"", "t")).what == "there is no bucket k3.state"


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (no(403, "SignatureDoesNotMatch"), "the store does not accept these S3 credentials"),
        (no(403, "InvalidAccessKeyId"), "the store does not accept these S3 credentials"),
        (no(501, "NotImplemented"), "the store at s3://k3.state/runs has no conditional writes"),
        (no(400, "InvalidArgument", "odd"), "cannot write a in the store"),
    ],
)
def test_every_other_answer_has_its_own_words(stub: Stub, store: S3Store, reply: Reply, what: str) -> None:
    stub.says(reply)
    error = refused(lambda: store.put_if_absent("a", b""))
    assert error.what == what
    assert error.context["answer"].startswith(reply.body.split(b"Code>")[1].decode()[:-2])  # type: ignore[attr-defined]


def test_no_credentials_are_told(stub: Stub, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert refused(lambda: store.get("a")).what == "there are no S3 credentials"
    assert stub.asked == []


def test_a_profile_that_does_not_exist_is_told(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert refused(lambda: store.get("a")).what == "the AWS profile does not exist"


def test_a_server_that_is_not_there_is_told(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    error = refused(lambda: store.get("a"))
    assert error.what == "the store at s3://k3.state/runs cannot be reached"


def test_all_pages_of_a_list_are_read(stub: Stub, store: S3Store) -> None:
    """S3 lists a thousand keys at a time."""

    def page(*keys: str, more: str = "") -> Reply:
        entries = "".join(f"<Contents><Key>runs/{key}</Key></Contents>" for key in keys)
        rest = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
        body = f"<?xml version='1.0'?><ListBucketResult>{entries}{rest}</ListBucketResult>"
        return Reply(200, {"Content-Type": "application/xml"}, body.encode())

    stub.says(page("b/1", "b/3", more="next"), page("b/2"))
    assert store.list("b/") == ["b/1", "b/2", "b/3"]
    assert "prefix=runs%2Fb%2F" in stub.asked[0].path
    assert "continuation-token=next" in stub.asked[1].path
