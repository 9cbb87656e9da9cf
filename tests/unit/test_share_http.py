"""The share's HTTP server against clients of all kinds, over real sockets of the loopback."""

import json
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from k3deploy.remote.share_http import Answer, HttpServer, Piece, error_answer, json_answer
from k3deploy.remote.share_request import Head, Patience
from tests.unit.remote_program import until

STRANGER = "127.0.0.9"
PEER = "127.0.0.3"


class Echo:
    """Says what it was asked; sends the file that it was given; lets nobody in who asks for /closed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.sent: list[int] = []
        self.is_done = threading.Event()

    def is_peer(self, address: str) -> bool:
        return address != STRANGER

    def refusal(self, head: Head) -> Answer | None:
        return error_answer(403, "not for you") if head.path == "/closed" else None

    def answer(self, head: Head, body: bytes) -> Answer:
        if head.path == "/file":
            descriptor = os.open(self.file, os.O_RDONLY)
            return Answer(200, piece=Piece(descriptor, 10, self.file.stat().st_size - 10), done=self._done)
        return json_answer({"method": head.method, "path": head.path, "body": body.decode(), "from": head.address})

    def _done(self, sent_bytes: int) -> None:
        self.sent.append(sent_bytes)
        self.is_done.set()


@pytest.fixture
def app(tmp_path: Path) -> Echo:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 10_000)
    return Echo(file)


Connect = Callable[..., socket.socket]


@pytest.fixture
def connect(app: Echo) -> Iterator[Connect]:
    """A connection to a server that is not patient, from any address of the loopback."""
    listener = socket.create_server(("127.0.0.2", 0))
    address = listener.getsockname()
    server = HttpServer(listener, app, Patience(idle_s=30.0, request_s=0.3, answer_s=0.3))
    opened: list[socket.socket] = []

    def connect(source: str = PEER) -> socket.socket:
        opened.append(socket.create_connection(address, 10.0, (source, 0)))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()
    server.close()


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    file = connection.makefile("rb")
    status = int(file.readline().split()[1])
    headers = {}
    while line := file.readline().strip():
        name, _, value = line.decode().partition(": ")
        headers[name] = value
    return status, headers, file.read(int(headers["Content-Length"]))


def says_no_more(connection: socket.socket) -> bool:
    return connection.recv(1) == b""


def test_requests_follow_each_other_on_one_connection_even_in_one_packet(connect: Connect) -> None:
    connection = connect()
    connection.sendall(
        b"POST /one HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /two HTTP/1.1\r\nConnection: close\r\n\r\n"
    )
    file = connection.makefile("rb").read()
    bodies = [json.loads(part[: part.index(b"}") + 1]) for part in file.split(b"\r\n\r\n")[1:]]
    assert bodies == [
        {"method": "POST", "path": "/one", "body": "abc", "from": PEER},
        {"method": "GET", "path": "/two", "body": "", "from": PEER},
    ]


def test_a_request_may_come_byte_by_byte(connect: Connect) -> None:
    connection = connect()
    for byte in b"POST / HTTP/1.1\r\ncontent-length:  2 \r\n\r\nok":
        connection.send(bytes([byte]))
    assert json.loads(read_answer(connection)[2])["body"] == "ok"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),  # TLS
        (b"GET / HTTP/1.0\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName : value\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName: a\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName: a\nOther: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: 262145\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999\r\n\r\n", 413),
        (b"GET /" + b"a" * 20_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"Name: value\r\n" * 2_000, 431),
        (b"GET / HTTP/1.1\r\nslow", 408),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nslow", 408),
        (b"POST /closed HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000, 403),
    ],
)
def test_what_makes_no_sense_is_answered_once_and_the_connection_ends(
    connect: Connect, request_text: bytes, status: int
) -> None:
    connection = connect()
    connection.sendall(request_text)
    answer = read_answer(connection)
    assert answer[0] == status
    assert answer[1]["Connection"] == "close"
    assert set(json.loads(answer[2])) == {"error"}
    assert says_no_more(connection)


def test_who_is_refused_half_way_may_finish_and_then_reads_why(connect: Connect) -> None:
    """Hung up on at once, a client would fail while it sends, and never look at the answer."""
    connection = connect()
    connection.sendall(b"POST /closed HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")
    assert select.select([connection], [], [], 10.0)[0]
    for _ in range(10):
        connection.sendall(b"x" * 10_000)
    assert read_answer(connection)[0] == 403


def test_a_body_of_the_longest_length_is_read(connect: Connect) -> None:
    connection = connect()
    connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 262144\r\n\r\n" + b"x" * 262144)
    assert len(json.loads(read_answer(connection)[2])["body"]) == 262144


def test_a_client_that_hangs_up_half_way_harms_nobody(connect: Connect) -> None:
    for text in (b"", b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"):
        connection = connect()
        connection.sendall(text)
        connection.close()
    connection = connect()
    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert read_answer(connection)[0] == 200


def test_a_file_goes_out_whole_and_the_connection_lives_on(connect: Connect, app: Echo) -> None:
    connection = connect()
    for _ in range(2):
        connection.sendall(b"GET /file HTTP/1.1\r\n\r\n")
        assert read_answer(connection)[2] == app.file.read_bytes()[10:]
    assert app.sent == [2_559_990, 2_559_990]


def test_a_receiver_that_takes_nothing_loses_its_place(connect: Connect, app: Echo) -> None:
    app.file.write_bytes(bytes(50_000_000))  # more than the sockets' buffers take
    connect().sendall(b"GET /file HTTP/1.1\r\n\r\n")
    assert app.is_done.wait(20)
    assert app.sent[0] < 49_999_990


def test_a_receiver_that_has_gone_loses_its_place(connect: Connect, app: Echo) -> None:
    app.file.write_bytes(bytes(50_000_000))
    connection = connect()
    connection.sendall(b"GET /file HTTP/1.1\r\n\r\n")
    assert connection.recv(1) == b"H"
    connection.close()
    assert app.is_done.wait(20)


def test_a_file_that_becomes_shorter_ends_the_connection(connect: Connect, app: Echo) -> None:
    app.file.write_bytes(bytes(50_000_000))
    connection = connect()
    connection.sendall(b"GET /file HTTP/1.1\r\n\r\n")
    assert connection.recv(1) == b"H"
    os.truncate(app.file, 1_000_000)
    while connection.recv(1 << 20):
        pass
    assert app.sent[0] < 49_999_990


def test_strangers_have_few_connections_and_peers_have_their_own(connect: Connect) -> None:
    strangers = [connect(STRANGER) for _ in range(8)]
    for each in strangers:
        each.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert read_answer(each)[0] == 200
    assert says_no_more(connect(STRANGER))
    connection = connect()
    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert read_answer(connection)[0] == 200


def test_a_peer_has_48_connections_and_gets_another_when_one_ends(connect: Connect) -> None:
    peers = [connect() for _ in range(48)]
    for each in peers:
        each.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert read_answer(each)[0] == 200
    assert says_no_more(connect())
    peers[0].sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert read_answer(peers[0])[0] == 200
    assert says_no_more(peers[0])
    peers[0].close()

    def is_let_in() -> bool:
        another = connect()
        try:
            another.sendall(b"GET / HTTP/1.1\r\n\r\n")
            return another.recv(1) == b"H"
        except ConnectionError:
            return False

    until(is_let_in, "the place of the connection that has ended is free")
