"""HTTP through a node: the fake's answers, and real ones over a dialled connection with its deadline and limits."""

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from k3deploy.adapters.http import BODY_LIMIT_BYTES, NodeHttp
from k3deploy.adapters.ssh import SshNodes
from k3deploy.contracts import Http, HttpResponse
from k3deploy.domain.command import Command
from k3deploy.domain.errors import EngineError, NodeUnreachable
from k3deploy.domain.names import NodeName
from k3deploy.testing import FakeHttp, FakeNodes, Unscripted
from tests.contract.sshd import HOST, Sshd

GPU = NodeName("gpu-00")


class Engine(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Handler)
        self.url = f"http://{HOST}:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/slow":
            self._head({"Content-Length": "100"})
            for _ in range(100):
                self.wfile.write(b"x")
                time.sleep(0.1)
        elif self.path == "/huge":
            self._head({"Content-Length": str(BODY_LIMIT_BYTES + 10)})
            for _ in range(BODY_LIMIT_BYTES // (1 << 20) + 1):
                self.wfile.write(b"x" * (1 << 20))
        elif self.path == "/chunked":
            self._head({"Transfer-Encoding": "chunked"})
            self.wfile.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        elif self.path == "/cut":
            self._head({"Content-Length": "100"})
            self.wfile.write(b"only this")
            self.close_connection = True
        elif self.path == "/until-close":
            self._head({"Connection": "close"})
            self.wfile.write(b"all of it")
            self.close_connection = True
        else:
            self._say(503 if self.path == "/health" else 200, self.path.encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._say(200, body[::-1] + self.headers["X-Key"].encode())

    def _say(self, status: int, body: bytes) -> None:
        self._head({"Content-Length": str(len(body)), "X-Engine": "yes"}, status)
        self.wfile.write(body)

    def _head(self, headers: dict[str, str], status: int = 200) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, BrokenPipeError):
            self.close_connection = True


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    running = Engine()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def dial_by_socket(engine: Engine) -> NodeHttp:
    nodes = FakeNodes("gpu-00")
    port = engine.server_address[1]
    nodes["gpu-00"].on_dial(HOST, int(port), lambda: socket.create_connection((HOST, int(port)), timeout=5))
    return NodeHttp(nodes)


@pytest.fixture(params=["over ssh", "over a fake node"])
def real(request: pytest.FixtureRequest, engine: Engine) -> Iterator[NodeHttp]:
    if request.param == "over a fake node":
        yield dial_by_socket(engine)
        return
    server: Sshd = request.getfixturevalue("server")
    nodes = SshNodes(server.nodes_file(), 10)
    assert nodes[GPU].run(Command(("true",))).succeeded  # so that no deadline below is for connecting
    yield NodeHttp(nodes)
    nodes.close()


@pytest.fixture(params=["fake", "real"])
def http_client(request: pytest.FixtureRequest, engine: Engine) -> Http:
    if request.param == "real":
        return dial_by_socket(engine)
    fake = FakeHttp()
    fake.on("GET", f"{engine.url}/v1/models", HttpResponse(200, {"x-engine": "yes"}, b"/v1/models"))
    fake.on("GET", f"{engine.url}/health", HttpResponse(503, {"x-engine": "yes"}, b"/health"))
    return fake


@pytest.mark.parametrize(("path", "status"), [("/v1/models", 200), ("/health", 503)])
def test_every_status_is_an_answer(http_client: Http, engine: Engine, path: str, status: int) -> None:
    answer = http_client.request("GET", engine.url + path, via=GPU, timeout_s=5)
    assert (answer.status, answer.body, answer.headers["x-engine"]) == (status, path.encode(), "yes")


def test_a_body_and_headers_are_sent(real: NodeHttp, engine: Engine) -> None:
    answer = real.request("POST", f"{engine.url}/x", via=GPU, headers={"X-Key": "k"}, body=b"abc", timeout_s=5)
    assert answer.body == b"cbak"


def test_the_query_is_sent(real: NodeHttp, engine: Engine) -> None:
    assert real.request("GET", f"{engine.url}/a?b=c%20d", via=GPU, timeout_s=5).body == b"/a?b=c%20d"


@pytest.mark.parametrize(("path", "body"), [("/chunked", b"abcde"), ("/until-close", b"all of it")])
def test_bodies_end_in_every_way_that_http_knows(real: NodeHttp, engine: Engine, path: str, body: bytes) -> None:
    assert real.request("GET", engine.url + path, via=GPU, timeout_s=5).body == body


def why(ask: Callable[[], HttpResponse]) -> str:
    with pytest.raises(EngineError) as caught:
        ask()
    assert caught.value.context["node"] == "gpu-00"
    return caught.value.why


def test_the_deadline_covers_the_whole_body(real: NodeHttp, engine: Engine) -> None:
    """A byte comes every 0.1 s, so no single read ever waits long."""
    assert why(lambda: real.request("GET", f"{engine.url}/slow", via=GPU, timeout_s=0.5)) == (
        "no complete answer within 0.5 s"
    )


def test_every_read_gets_only_the_time_that_is_left() -> None:
    pieces = [b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\n", b"o", b"k"]
    limits: list[float] = []

    class Slow:
        def settimeout(self, timeout_s: float) -> None:
            limits.append(timeout_s)

        def sendall(self, data: bytes) -> None:
            pass

        def recv(self, size: int) -> bytes:
            time.sleep(0.01)
            return pieces.pop(0)

        def close(self) -> None:
            pass

    nodes = FakeNodes("gpu-00")
    nodes["gpu-00"].on_dial(HOST, 80, Slow)
    assert NodeHttp(nodes).request("GET", f"http://{HOST}/", via=GPU, timeout_s=20).body == b"ok"
    assert len(limits) == 5  # one write, four reads
    assert 20 >= limits[0] > limits[1] > limits[2] > limits[3] > limits[4] > 0


def test_a_body_that_was_cut_is_no_answer(real: NodeHttp, engine: Engine) -> None:
    assert "ended early" in why(lambda: real.request("GET", f"{engine.url}/cut", via=GPU, timeout_s=5))


def test_a_body_has_a_limit(engine: Engine) -> None:
    ask = dial_by_socket(engine)
    assert "more than" in why(lambda: ask.request("GET", f"{engine.url}/huge", via=GPU, timeout_s=30))


def test_nothing_listening_is_told(server: Sshd) -> None:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    nodes = SshNodes(server.nodes_file(), 10)
    ask = NodeHttp(nodes)
    assert why(lambda: ask.request("GET", f"http://{HOST}:{port}/", via=GPU, timeout_s=5)) == "nothing listens there"
    nodes.close()


def test_a_node_that_is_away_is_no_engine_error() -> None:
    nodes = FakeNodes("gpu-00")
    nodes["gpu-00"].error = NodeUnreachable(what="gone", fix="-")
    with pytest.raises(NodeUnreachable):
        NodeHttp(nodes).request("GET", f"http://{HOST}:1/", via=GPU, timeout_s=5)


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "10.0.0.1:8000/health", "http:///x"])
def test_only_plain_http_is_spoken(url: str) -> None:
    with pytest.raises(ValueError, match="plain HTTP"):
        NodeHttp(FakeNodes("gpu-00")).request("GET", url, via=GPU, timeout_s=5)


def test_the_fake_answers_in_turn_and_invents_nothing() -> None:
    fake = FakeHttp()
    fake.on("GET", "http://a/", HttpResponse(503, {}, b""), HttpResponse(200, {}, b""))
    statuses = [fake.request("GET", "http://a/", via=GPU, timeout_s=1).status for _ in range(3)]
    assert statuses == [503, 200, 200]
    with pytest.raises(Unscripted):
        fake.request("POST", "http://a/", via=GPU, timeout_s=1)
