"""The share over real sockets: who is let in, which blobs go out, what it says to trackers, when it ends."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote import share
from k3deploy.remote.job_folder import JobFolder, write_atomically
from k3deploy.remote.protocol import Refusal
from tests.unit.remote_program import run, until
from tests.unit.share_world import CONTENT, RUN, TOKEN, Running, ShareNode, write_peers
from tests.unit.test_reach import free_ports

FIRST, SECOND, THIRD, STRANGER = "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.9"
PATHS = list(CONTENT)

Start = Callable[[ShareNode], Running]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Running] = []

    def start(node: ShareNode) -> Running:
        running.append(node.start())
        return running[-1]

    yield start
    for each in running:
        each.server.close()


@pytest.fixture
def peers_file(tmp_path: Path) -> Path:
    write_peers(tmp_path / "peers.json", {"gpu-01": FIRST, "gpu-02": SECOND, "gpu-03": THIRD})
    return tmp_path / "peers.json"


@pytest.fixture
def make(tmp_path: Path, peers_file: Path) -> Callable[..., ShareNode]:
    ports = free_ports(2)
    return lambda name, address, **more: ShareNode(name, address, tmp_path / name, peers_file, ports, **more)


@pytest.fixture
def node(make: Callable[..., ShareNode], start: Start) -> ShareNode:
    """The first node of the run; its share runs, and it holds two proved shards and one that nobody has hashed."""
    made = make("gpu-01", FIRST)
    made.put(0, 1)
    made.put_unproved(2)
    start(made)
    return made


def blob(node: ShareNode, index: int) -> str:
    return "/b/" + node.files[index].digest


class TestWhoIsLetIn:
    def test_a_peer_and_the_node_itself(self, node: ShareNode) -> None:
        assert node.ask("GET", blob(node, 0), source=SECOND).status == 200
        assert node.ask("GET", blob(node, 0)).status == 200

    def test_no_other_address_whatever_it_knows(self, node: ShareNode) -> None:
        reply = node.ask("GET", blob(node, 0), source=STRANGER)
        assert (reply.status, reply.json["error"]) == (403, "127.0.0.9 is no node of this run")

    def test_a_node_that_was_added_to_the_run_and_no_longer_one_that_was_removed(
        self, node: ShareNode, peers_file: Path
    ) -> None:
        write_peers(peers_file, {"gpu-01": FIRST, "gpu-09": STRANGER})
        assert node.ask("GET", blob(node, 0), source=STRANGER).status == 200
        assert node.ask("GET", blob(node, 0), source=SECOND).status == 403

    @pytest.mark.parametrize("token", [None, "", TOKEN[:-1], TOKEN + "x", "another"])
    def test_nobody_without_the_token(self, node: ShareNode, token: str | None) -> None:
        assert node.ask("GET", blob(node, 0), source=SECOND, token=token).status == 401

    @pytest.mark.parametrize(
        "header", ["Basic MDEyMw==", "bearer 0123456789abcdef-of-the-run", "0123456789abcdef-of-the-run"]
    )
    def test_the_token_has_one_form(self, node: ShareNode, header: str) -> None:
        assert node.ask("GET", "/v1/state", token=None, headers={"Authorization": header}).status == 401

    def test_a_token_of_odd_characters_is_only_wrong(self, node: ShareNode) -> None:
        assert node.ask("GET", "/v1/state", token="tök\xffn").status == 401


class TestWhatGoesOut:
    def test_a_whole_blob(self, node: ShareNode) -> None:
        reply = node.ask("GET", blob(node, 1), source=SECOND)
        assert reply.body == CONTENT[PATHS[1]]
        assert reply.headers["Content-Length"] == "100002"

    @pytest.mark.parametrize(
        ("asked", "first", "last"),
        [
            ("bytes=0-0", 0, 0),
            ("bytes=0-99", 0, 99),
            ("bytes=100000-", 100000, 100000),
            ("bytes=50000-", 50000, 100000),
            ("bytes=5-999999999", 5, 100000),
            ("bytes=-1", 100000, 100000),
            ("bytes=-999999", 0, 100000),
        ],
    )
    def test_a_part(self, node: ShareNode, asked: str, first: int, last: int) -> None:
        reply = node.ask("GET", blob(node, 0), source=SECOND, headers={"Range": asked})
        assert reply.status == 206
        assert reply.headers["Content-Range"] == f"bytes {first}-{last}/100001"
        assert reply.body == CONTENT[PATHS[0]][first : last + 1]

    @pytest.mark.parametrize(
        "asked", ["bytes=100001-", "bytes=5-4", "bytes=-0", "bytes=-", "bytes=0-1,5-6", "items=0-1", "bytes=a-b", ""]
    )
    def test_no_part_that_is_not_there(self, node: ShareNode, asked: str) -> None:
        reply = node.ask("GET", blob(node, 0), source=SECOND, headers={"Range": asked})
        assert reply.status == 416
        assert reply.headers["Content-Range"] == "bytes */100001"

    def test_no_blob_that_nobody_has_hashed(self, node: ShareNode) -> None:
        assert node.ask("GET", blob(node, 2), source=SECOND).status == 404

    def test_a_blob_as_soon_as_it_is_proved(self, node: ShareNode) -> None:
        assert node.ask("GET", blob(node, 3), source=SECOND).status == 404
        node.put(3)
        assert node.ask("GET", blob(node, 3), source=SECOND).body == CONTENT[PATHS[3]]

    def test_no_blob_that_was_hashed_and_wrong(self, node: ShareNode) -> None:
        node.put(3, digest="f" * 64)
        assert node.ask("GET", blob(node, 3), source=SECOND).status == 404

    def test_no_blob_that_was_written_to_since(self, node: ShareNode) -> None:
        with Path(node.repository.blob(node.files[0].digest)).open("r+b") as file:
            file.write(b"x")
        assert node.ask("GET", blob(node, 0), source=SECOND).status == 404

    def test_no_blob_that_was_replaced_or_became_shorter_or_went_away(self, node: ShareNode) -> None:
        path = Path(node.repository.blob(node.files[0].digest))
        path.with_suffix(".other").write_bytes(path.read_bytes())
        path.with_suffix(".other").replace(path)
        assert node.ask("GET", blob(node, 0), source=SECOND).status == 404
        os.truncate(node.repository.blob(node.files[1].digest), 5)
        assert node.ask("GET", blob(node, 1), source=SECOND).status == 404
        path.unlink()
        assert node.ask("GET", blob(node, 0), source=SECOND).status == 404

    def test_no_blob_whose_link_leads_out_of_the_cache(self, node: ShareNode, tmp_path: Path) -> None:
        path = Path(node.repository.blob(node.files[0].digest))
        outside = tmp_path / "outside"
        path.rename(outside)
        path.symlink_to(outside)
        assert node.ask("GET", blob(node, 0), source=SECOND).status == 404

    def test_nothing_after_the_stamps_are_gone(self, node: ShareNode) -> None:
        Path(node.repository.stamps).unlink()
        assert node.ask("GET", blob(node, 0), source=SECOND).status == 404

    @pytest.mark.parametrize(
        "path",
        [
            "/",
            "/b/",
            "/b/" + "0" * 64,  # no file of this manifest
            "/b/" + "1" * 40,  # the small file: every node has it from the Hub
            "/b/../hf/hub",
            "/b/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "/b/" + "0" * 63 + "/",
            "//b/" + "0" * 64,
            "/b/" + "0" * 64 + "?x=1",
            "/b/" + "0" * 64 + ".bad",
            "/v1/state/",
            "/v1/State",
        ],
    )
    def test_nothing_else_by_any_name(self, node: ShareNode, path: str) -> None:
        assert node.ask("GET", path, source=SECOND).status == 404

    def test_digests_have_one_spelling(self, node: ShareNode) -> None:
        assert node.ask("GET", blob(node, 0).upper().replace("/B/", "/b/"), source=SECOND).status == 404

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("POST", "/v1/state", "GET"),
            ("GET", "/v1/report", "POST"),
            ("GET", "/v1/end", "POST"),
            ("HEAD", "/b/", "GET"),
        ],
    )
    def test_one_method_for_each_thing(self, node: ShareNode, method: str, path: str, allowed: str) -> None:
        reply = node.ask(method, blob(node, 0) if path == "/b/" else path, source=SECOND)
        assert reply.status == 405
        assert reply.headers["Allow"] == allowed

    def test_no_more_transfers_at_a_time_than_there_are_slots(self, make: Any, start: Start) -> None:
        node = make("gpu-02", SECOND, slots=1, content={"big": bytes(30_000_000), "small": b"x", "absent": b"y"})
        node.put(0, 1)
        start(node)
        with socket.create_connection((SECOND, node.ports[0]), 10, (FIRST, 0)) as slow:
            slow.sendall(f"GET {blob(node, 0)} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert slow.recv(12) == b"HTTP/1.1 200"
            reply = node.ask("GET", blob(node, 1), source=FIRST)
            assert (reply.status, reply.headers["Retry-After"]) == (503, "0")
            assert node.ask("GET", "/v1/state", source=FIRST).status == 200
            assert node.ask("GET", blob(node, 2), source=FIRST).status == 404  # asking for nothing takes no slot
        until(lambda: node.ask("GET", blob(node, 1), source=FIRST).status == 200, "the slot is free")


class TestWhatTrackersLearn:
    def test_what_is_proved_here_and_what_the_fetch_has_in_hand(self, node: ShareNode) -> None:
        assert node.ask("GET", "/v1/state").json == {
            "node": "gpu-01",
            "manifest": node.digest,
            "held": [0, 1],
            "leases": {},
        }
        fetch = JobFolder(str(node.folder / "fetch"))
        fetch.write("leases.json", {"2": 512})
        assert node.ask("GET", "/v1/state").json["leases"] == {}  # of a job that has ended
        lock = fetch.hold()
        assert lock is not None
        assert node.ask("GET", "/v1/state").json["leases"] == {"2": 512}
        os.close(lock)

    def test_a_small_file_is_never_part_of_it(self, node: ShareNode) -> None:
        node.put(4)
        assert node.ask("GET", "/v1/state").json["held"] == [0, 1]


class TestTracker:
    def test_a_report_is_answered(self, node: ShareNode) -> None:
        answer = node.report("gpu-02", SECOND, held=[1]).json
        assert answer["holders"] == {"0": ["gpu-01"]}  # from the state of its own share, which it asked first
        assert answer["leases"] == [2]  # 3 is of the part of gpu-01; 2 of gpu-03, which is not there

    def test_it_asks_all_nodes_before_it_grants(self, make: Any, start: Start) -> None:
        first, second = make("gpu-01", FIRST), make("gpu-02", SECOND)
        second.put(0, 1, 2)
        fetch = JobFolder(str(second.folder / "fetch"))
        fetch.write("leases.json", {"3": 1})
        lock = fetch.hold()
        assert lock is not None
        start(first)
        start(second)
        answer = first.report("gpu-03", THIRD).json
        assert answer["leases"] == []
        assert answer["holders"] == {"0": ["gpu-02"], "1": ["gpu-02"], "2": ["gpu-02"]}
        os.close(lock)

    def test_a_share_of_other_files_on_the_first_port_is_passed_over(self, make: Any, start: Start) -> None:
        first, second = make("gpu-01", FIRST), make("gpu-02", SECOND)
        draft = ShareNode(
            "gpu-02", SECOND, second.folder / "draft", second.peers_file, second.ports, content={"d": b"d"}
        )
        draft.put(0)
        second.put(3)
        for each in (draft, first, second):
            start(each)
        assert first.report("gpu-03", THIRD).json["holders"] == {"3": ["gpu-02"]}

    @pytest.mark.parametrize(
        ("words", "status", "error"),
        [
            ({"manifest": "0" * 64}, 409, "this node shares other files: its manifest is "),
            ({"run": "another"}, 409, f"this is run {RUN}"),
            ({"node": "gpu-03"}, 403, "'gpu-03' is not the node at 127.0.0.3"),
            ({"node": "gpu-77"}, 403, "'gpu-77' is not the node at 127.0.0.3"),
            ({"node": None}, 403, "None is not the node at 127.0.0.3"),
            ({"held": [4]}, 400, "the report makes no sense: held: 4 is no file of this manifest"),
            ({"held": [-1]}, 400, "the report makes no sense: held: -1 "),
            ({"held": [True]}, 400, "the report makes no sense: held: True "),
            ({"held": ["0"]}, 400, "the report makes no sense: held: '0' "),
            ({"held": {"0": 1}}, 400, "the report makes no sense: held: no list"),
            ({"leases": {"x": 1}}, 400, "the report makes no sense: leases: "),
            ({"leases": {"٣": 1}}, 400, "the report makes no sense: leases: "),
            ({"leases": {"9" * 5000: 1}}, 400, "the report makes no sense: leases: "),
            ({"leases": {"0": -1}}, 400, "the report makes no sense: leases: -1"),
            ({"leases": {"0": None}}, 400, "the report makes no sense: leases: None"),
            ({"leases": [0]}, 400, "the report makes no sense: leases: no object"),
            ({"room": -1}, 400, "the report makes no sense: room: -1"),
            ({"room": 10**30}, 400, "the report makes no sense: room: 1000"),
            ({"hub_bps": "fast"}, 400, "the report makes no sense: hub_bps: 'fast'"),
            ({"hub_bps": -0.5}, 400, "the report makes no sense: hub_bps: -0.5"),
            ({"lan_bps": 1e300}, 400, "the report makes no sense: lan_bps: 1e+300"),
            ({"strategy": "hub"}, 400, "the report makes no sense: strategy: 'hub'"),
        ],
    )
    def test_a_report_that_is_wrong_is_answered_with_what_is_wrong(
        self, node: ShareNode, words: dict[str, Any], status: int, error: str
    ) -> None:
        reply = node.report(**{"node": "gpu-02", "source": SECOND, **words})
        assert reply.status == status
        assert reply.json["error"].startswith(error)

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b"\xff\xfe",
            b'{"hub_bps": NaN}',
            b'{"room": Infinity}',
            b"[" * 100_000,
            b'{"run": {}}',
        ],
    )
    def test_a_body_that_is_no_report_is_refused(self, node: ShareNode, body: bytes) -> None:
        assert node.ask("POST", "/v1/report", body, source=SECOND).status in (400, 409)
        assert node.report("gpu-02", SECOND).status == 200

    def test_all_nodes_may_report_at_the_same_moment(self, node: ShareNode) -> None:
        names = {"gpu-01": FIRST, "gpu-02": SECOND, "gpu-03": THIRD}
        answers: dict[str, Any] = {}

        def report(name: str) -> None:
            answers[name] = node.report(name, names[name], held=[0, 1] if name == "gpu-01" else []).json

        threads = [threading.Thread(target=report, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        granted = [index for answer in answers.values() for index in answer["leases"]]
        assert sorted(granted) == [2, 3]


class TestTheEnd:
    def test_a_share_that_nobody_asks_ends_when_it_has_lingered(self, make: Any, start: Start) -> None:
        node = make("gpu-01", FIRST)
        running = start(node)
        now = running.share.asked_at
        assert running.share.reason_to_end(now + 899) is None
        assert running.share.reason_to_end(now + 901) == "nobody has asked for 900 s"

    def test_it_stays_while_this_node_fetches(self, make: Any, start: Start) -> None:
        node = make("gpu-01", FIRST)
        lock = JobFolder(str(node.folder / "fetch")).hold()
        assert lock is not None
        running = start(node)
        assert running.share.reason_to_end(running.share.asked_at + 9999) is None
        os.close(lock)

    def test_when_all_nodes_have_all_files_all_shares_end(self, make: Any, start: Start) -> None:
        first, second = make("gpu-01", FIRST), make("gpu-02", SECOND)
        tracking, other = start(first), start(second)
        everything = [0, 1, 2, 3]
        for name, source in (("gpu-01", FIRST), ("gpu-02", SECOND)):
            first.report(name, source, held=everything)
        assert tracking.share.reason_to_end(tracking.share.asked_at + 6) is None
        first.report("gpu-03", THIRD, held=everything)
        assert tracking.share.reason_to_end(tracking.share.asked_at + 4) is None
        assert other.share.reason_to_end(other.share.asked_at + 6) is None
        assert tracking.share.reason_to_end(tracking.share.asked_at + 6) == "every node has every file"
        assert other.share.reason_to_end(other.share.asked_at + 6) == "every node has every file"

    def test_somebody_who_asks_after_the_end_was_told_is_served_on(self, make: Any, start: Start) -> None:
        node = make("gpu-02", SECOND)
        node.put(0)
        running = start(node)
        assert node.ask("POST", "/v1/end", source=FIRST).json == {"manifest": node.digest}
        assert node.ask("GET", blob(node, 0), source=FIRST).status == 200
        assert running.share.reason_to_end(running.share.asked_at + 6) is None

    def test_it_stays_for_what_the_operator_starts_after_the_end_was_told(self, make: Any, start: Start) -> None:
        """Else its node would fetch alone: the operator saw a share that runs, and started none."""
        node = make("gpu-02", SECOND)
        running = start(node)
        assert node.ask("POST", "/v1/end", source=FIRST).status == 200
        told_at = running.share.asked_at
        write_atomically(str(node.peers_file), node.peers_file.read_text())
        assert running.share.reason_to_end(told_at + 6) is None
        assert running.share.reason_to_end(told_at + 20) is None

    def test_a_tracker_that_knew_all_complete_waits_for_the_next_report(self, make: Any, start: Start) -> None:
        node = make("gpu-01", FIRST)
        running = start(node)
        for name, source in (("gpu-01", FIRST), ("gpu-02", SECOND), ("gpu-03", THIRD)):
            node.report(name, source, held=[0, 1, 2, 3])
        write_atomically(str(node.peers_file), node.peers_file.read_text())
        now = running.share.asked_at
        assert running.share.reason_to_end(now + 6) is None
        assert running.share.reason_to_end(now + 20) is None
        node.report("gpu-02", SECOND, held=[0, 1, 2, 3])
        assert running.share.reason_to_end(running.share.asked_at + 6) == "every node has every file"


class TestProgram:
    def test_it_runs_as_a_node_runs_it_and_says_what_it_gave(self, make: Any) -> None:
        node = make("gpu-01", FIRST)
        result = run("share", node.args(linger_s=0.0)).result
        assert result["served_bytes"] == 0
        assert result["why"] == "nobody has asked for 0 s"

    def test_the_first_free_port_is_taken(self) -> None:
        ports = free_ports(2)
        with socket.create_server((FIRST, ports[0])), share.listen(FIRST, ports) as listener:
            assert listener.getsockname() == (FIRST, ports[1])

    def test_no_free_port_is_said(self) -> None:
        ports = free_ports(1)
        with socket.create_server((FIRST, ports[0])), pytest.raises(Refusal) as refusal:
            share.listen(FIRST, ports)
        assert refusal.value.what == f"none of the ports {ports[0]} to {ports[0]} is free on {FIRST}"
        assert "network.weights_port" in refusal.value.fix

    def test_an_address_of_another_machine_is_said(self) -> None:
        with pytest.raises(Refusal) as refusal:
            share.listen("192.0.2.1", free_ports(1))
        assert refusal.value.what == "cannot listen on 192.0.2.1"
