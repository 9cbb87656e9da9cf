"""The process that receives files: from peers that break off, refuse, lie or send something else than was asked for."""

import contextlib
import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from k3deploy.adapters.bundle import script
from k3deploy.remote.hub_cache import Found, Repository, Wanted
from k3deploy.remote.stamps import identity
from tests.unit.remote_program import until

BODY = bytes(range(256)) * 1200
FILE = Wanted("folder/model.safetensors", len(BODY), hashlib.sha256(BODY).hexdigest(), is_sha256=True)
TOKEN = "only-this-run-knows"
LONG_S = 30.0


@dataclass
class Peer(ThreadingHTTPServer):
    """A share of another node. `status`: of each answer; `breaks_at`: the byte of the file where it hangs up;
    `trickles_until`: until then it sends little by little, and takes minutes.
    """

    body: bytes = BODY
    status: int = 206
    breaks_at: int | None = None
    trickles_until: threading.Event | None = None
    says_range: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)

    def __hash__(self) -> int:
        return id(self)

    def source(self, name: str = "gpu-02", *, before: tuple[int, ...] = ()) -> dict[str, Any]:
        return {"name": name, "address": "127.0.0.1", "ports": [*before, self.server_address[1]]}


class Handler(BaseHTTPRequestHandler):
    server: Peer

    def do_GET(self) -> None:
        peer = self.server
        peer.asked.append({**dict(self.headers), "path": self.path})
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if peer.status == 200:
            first = 0
        self.send_response(peer.status if peer.status != 206 or first else 200)
        if peer.status > 206:
            self.end_headers()
            return
        size = len(peer.body)
        self.send_header("Content-Length", str(size - first))
        if peer.status == 206 and first:
            self.send_header("Content-Range", peer.says_range or f"bytes {first}-{size - 1}/{size}")
        self.end_headers()
        if peer.trickles_until is not None:
            with contextlib.suppress(ConnectionError):
                while first < size and not peer.trickles_until.wait(0.05):
                    self.wfile.write(peer.body[first : first + 100])
                    first += 100
            return
        self.wfile.write(peer.body[first : peer.breaks_at])

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def peer(**how: Any) -> Iterator[Peer]:
    server = Peer(**how)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        if server.trickles_until is not None:
            server.trickles_until.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Worker:
    """The real process, with this test as its parent."""

    def __init__(self, folder: Path) -> None:
        self.repository = Repository(str(folder / "hf"), "owner/name", "c" * 40)
        Path(self.repository.blobs).mkdir(parents=True)
        program = folder / "worker.py"
        program.write_bytes(script("receive_worker", {}))
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        settings = {"hf_home": str(folder / "hf"), "repo": "owner/name", "commit": "c" * 40}
        self.send({**settings, "address": "127.0.0.1", "swarm_token": TOKEN})
        assert self.hear() == {"ready": True}

    def send(self, body: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(body).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        word: dict[str, Any] = json.loads(self._process.stdout.readline())["progress"]
        return word

    def receive(self, *sources: dict[str, Any], is_fresh: bool = False) -> dict[str, Any]:
        """The last word on the file."""
        self.send({"file": FILE._asdict(), "sources": list(sources), "is_fresh": is_fresh})
        while "file" not in (word := self.hear()):
            pass
        return word

    @property
    def blob(self) -> Path:
        return Path(self.repository.blob(FILE.digest))

    @property
    def partial(self) -> Path:
        return Path(self.repository.blob(FILE.digest) + ".k3deploy.incomplete")

    def hang_up(self) -> None:
        """As when the parent dies. It must end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(LONG_S) == 0
        self._process.stdin = None

    def exit_code(self) -> int:
        """When it ends by itself."""
        return self._process.wait(LONG_S)

    def peak_kib(self) -> int:
        """The most memory that it ever had."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(dict(line.split(":", 1) for line in status.splitlines())["VmHWM"].split()[0])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(tmp_path)
    yield worker
    worker.close()


def test_a_file_becomes_a_blob_with_a_link_and_is_known_by_its_identity(worker: Worker) -> None:
    with peer() as gpu:
        word = worker.receive(gpu.source())
    assert (word["failure"], word["digest"], word["gave"], word["refused"]) == (None, FILE.digest, ["gpu-02"], {})
    assert worker.blob.read_bytes() == BODY
    link = Path(worker.repository.link(FILE.path))
    assert link.readlink() == Path(f"../../../blobs/{FILE.digest}")
    assert word["identity"] == identity(Found(str(worker.blob), worker.blob.stat()))
    assert gpu.asked[0]["path"] == "/b/" + FILE.digest
    assert gpu.asked[0]["Authorization"] == "Bearer " + TOKEN
    assert not worker.partial.exists()


def test_when_a_holder_breaks_off_the_next_one_goes_on_at_that_byte(worker: Worker) -> None:
    with peer(breaks_at=100_000) as one, peer() as two:
        word = worker.receive(one.source("gpu-02"), two.source("gpu-03"))
    assert word["failure"] is None
    assert word["gave"] == ["gpu-02", "gpu-03"]
    assert list(word["refused"]) == ["gpu-02"]
    assert two.asked[0]["Range"] == "bytes=100000-"
    assert worker.blob.read_bytes() == BODY


def test_when_all_break_off_the_half_stays_for_the_next_time(worker: Worker) -> None:
    with peer(breaks_at=100_000) as one, peer() as two:
        word = worker.receive(one.source())
        assert (word["failure"]["kind"], word["gave"]) == ("retry", ["gpu-02"])
        assert worker.partial.read_bytes() == BODY[:100_000]
        word = worker.receive(two.source())
    assert (word["failure"], word["gave"]) == (None, ["", "gpu-02"])
    assert two.asked[0]["Range"] == "bytes=100000-"


def test_a_busy_holder_is_passed_over_at_once(worker: Worker) -> None:
    with peer(status=503) as one, peer() as two:
        word = worker.receive(one.source("gpu-02"), two.source("gpu-03"))
    assert (word["failure"], word["gave"]) == (None, ["gpu-03"])
    assert word["refused"]["gpu-02"]["kind"] == "busy"


@pytest.mark.parametrize(("status", "kind"), [(503, "busy"), (404, "absent"), (401, "no-access"), (500, "retry")])
def test_a_refusal_is_told_by_its_class(worker: Worker, status: int, kind: str) -> None:
    with peer(status=status) as gpu:
        word = worker.receive(gpu.source())
    assert word["failure"]["kind"] == kind
    assert word["refused"] == {"gpu-02": word["failure"]}
    assert word["gave"] == []


def test_another_share_on_the_first_port_is_passed_over(worker: Worker) -> None:
    with peer(status=404) as other, peer() as gpu:
        word = worker.receive(gpu.source(before=(other.server_address[1],)))
        assert word["failure"] is None
        worker.blob.unlink()
        worker.receive(gpu.source(before=(other.server_address[1],)))
    assert len(other.asked) == 1  # the second time it was known who listens where


def test_nobody_listening_is_a_refusal_like_others(worker: Worker) -> None:
    with peer() as gpu:
        source = gpu.source()
    word = worker.receive(source)
    assert word["failure"]["kind"] == "retry"
    assert "refused" in word["failure"]["text"]


def test_wrong_bytes_never_become_a_blob_and_nothing_of_them_stays(worker: Worker) -> None:
    with peer(body=BODY[:-1] + b"x") as liar:
        word = worker.receive(liar.source())
    assert (word["failure"]["kind"], word["gave"]) == ("wrong-bytes", ["gpu-02"])
    assert list(worker.blob.parent.iterdir()) == []
    assert not Path(worker.repository.link(FILE.path)).is_symlink()


def test_a_fresh_start_forgets_what_lies_there(worker: Worker) -> None:
    worker.partial.write_bytes(b"x" * 1000)
    with peer() as gpu:
        word = worker.receive(gpu.source(), is_fresh=True)
    assert (word["failure"], word["gave"]) == (None, ["gpu-02"])
    assert "Range" not in gpu.asked[0]


def test_a_source_without_ranges_is_taken_from_its_first_byte(worker: Worker) -> None:
    worker.partial.write_bytes(b"x" * 1000)  # wrong, which nobody finds out: it is written over
    with peer(status=200) as gpu:
        assert worker.receive(gpu.source())["failure"] is None
    assert worker.blob.read_bytes() == BODY


@pytest.mark.parametrize("says", ["bytes 999-307199/307200", "bytes 1000-307199/307201", "nonsense"])
def test_an_answer_with_another_range_is_no_answer(worker: Worker, says: str) -> None:
    worker.partial.write_bytes(BODY[:1000])
    with peer(says_range=says) as gpu:
        word = worker.receive(gpu.source())
    assert word["failure"]["kind"] == "retry"
    assert worker.partial.read_bytes() == BODY[:1000]


def test_a_whole_half_asks_nobody(worker: Worker) -> None:
    worker.partial.write_bytes(BODY)
    with peer() as gpu:
        word = worker.receive(gpu.source())
    assert (word["failure"], word["gave"], gpu.asked) == (None, [""], [])


def test_told_to_stop_it_keeps_its_half_and_takes_the_next_task(worker: Worker) -> None:
    with peer(trickles_until=threading.Event()) as slow, peer() as gpu:
        worker.send({"file": FILE._asdict(), "sources": [slow.source()], "is_fresh": False})
        until(lambda: worker.partial.exists() and worker.partial.stat().st_size > 0, "some of it is here")
        worker.send({"stop": FILE.path})
        assert worker.hear()["failure"]["kind"] == "stopped"
        half = worker.partial.stat().st_size
        assert worker.receive(gpu.source())["gave"] == ["", "gpu-02"]
    assert gpu.asked[0]["Range"] == f"bytes={half}-"


def test_a_file_that_is_here_is_proved_without_asking_anybody(worker: Worker) -> None:
    with peer() as gpu:
        worker.receive(gpu.source())
    worker.send({"file": FILE._asdict(), "sources": None, "is_fresh": False})
    word = worker.hear()
    assert (word["failure"], word["digest"]) == (None, FILE.digest)


def test_a_blob_that_came_another_way_is_only_linked_and_proved(worker: Worker) -> None:
    worker.blob.write_bytes(BODY)
    with peer() as gpu:
        word = worker.receive(gpu.source())
    assert (word["failure"], word["digest"], gpu.asked) == (None, FILE.digest, [])
    assert Path(worker.repository.link(FILE.path)).read_bytes() == BODY


def test_its_memory_does_not_grow_with_the_file(worker: Worker) -> None:
    size = 400 << 20
    large = Wanted("large.safetensors", size, "e" * 64, is_sha256=True)
    with peer(body=bytes(size)) as gpu:
        worker.send({"file": large._asdict(), "sources": [gpu.source()], "is_fresh": False})
        word = worker.hear()
        while "file" not in word:
            word = worker.hear()
    # `head -c 419430400 /dev/zero | openssl dgst -sha256`
    assert "digest is 6ed5e85372e488807486f4446e2a3a50" in word["failure"]["text"]
    assert worker.peak_kib() < 64 << 10


def test_a_mistake_of_ours_ends_it_at_once(worker: Worker) -> None:
    """A thread that ended without a word would look like a peer that sends nothing, until the stall is noticed."""
    worker.send({"file": FILE._asdict(), "is_fresh": False})
    assert worker.exit_code() == 1


def test_it_ends_with_its_parent_whatever_it_does(worker: Worker) -> None:
    with peer(trickles_until=threading.Event()) as slow:
        worker.send({"file": FILE._asdict(), "sources": [slow.source()], "is_fresh": False})
        until(lambda: slow.asked, "it has asked")
        worker.hang_up()
