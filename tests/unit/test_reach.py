"""Reach: the program on loopback addresses, what its findings mean, and when the kept record counts."""

import json
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from k3deploy.adapters.profiles import load_profile
from k3deploy.contracts import Services
from k3deploy.domain.command import Program, Question
from k3deploy.domain.errors import NodeError, PhaseFailed
from k3deploy.domain.names import NodeName, RunId
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.reach import Dial, Found, blocked, common_range, dials, random_ports
from k3deploy.domain.run import Keys
from k3deploy.domain.steps import Target
from k3deploy.domain.topology import assign
from k3deploy.phases.node_site import NodeSite
from k3deploy.phases.reach import FRESH_S, ReachPhase
from k3deploy.remote import reach
from k3deploy.testing import FakeClock, FakeNodes, FakeSurvey, MemoryStore, services
from tests.golden.plan.case import FOLDER

RUN = RunId("h100x32-20260728-074500-0a1b")
NAMES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")


def unsaid(_word: dict[str, Any]) -> None:
    """For programs whose words a test does not look at."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody has on any loopback address just now."""
    held = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def together(addresses: Mapping[str, str], ports: list[int], **changes: Any) -> dict[str, dict[str, Any]]:
    """Run the program of every node at the same time; `changes` replaces arguments of one node by its name."""

    def args(name: str) -> dict[str, Any]:
        peers = [
            {"name": other, "address": address, "token": f"token of {other}"}
            for other, address in addresses.items()
            if other != name
        ]
        own = {"name": name, "address": addresses[name], "token": f"token of {name}", "ports": ports}
        return {**own, "peers": peers, "connect_s": 0.3, "grace_s": 5.0, **changes.get(name.replace("-", "_"), {})}

    with ThreadPoolExecutor(len(addresses)) as pool:
        futures = {name: pool.submit(reach.main, args(name), unsaid) for name in addresses}
        return {name: future.result() for name, future in futures.items()}


def found(result: dict[str, Any]) -> set[tuple[str, int, str]]:
    return {(row["to"], row["port"], row["found"]) for row in result["dials"]}


def test_three_nodes_reach_each_other_on_all_ports() -> None:
    ports = free_ports(2)
    results = together({"gpu-01": "127.0.0.2", "gpu-02": "127.0.0.3", "gpu-03": "127.0.0.4"}, ports)
    assert found(results["gpu-01"]) == {(to, port, "answered") for to in ("gpu-02", "gpu-03") for port in ports}
    assert found(results["gpu-03"]) == {(to, port, "answered") for to in ("gpu-01", "gpu-02") for port in ports}
    assert [result["busy"] for result in results.values()] == [[], [], []]


def test_a_port_that_an_engine_holds_is_open_and_gets_no_byte() -> None:
    ports = free_ports(2)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.3", ports[0])) as engine:

        def listen() -> None:
            connection, _ = engine.accept()
            with connection:
                heard.append(connection.recv(100))

        thread = threading.Thread(target=listen)
        thread.start()
        results = together({"gpu-01": "127.0.0.2", "gpu-02": "127.0.0.3"}, ports)
        thread.join(5)
    assert found(results["gpu-01"]) == {("gpu-02", ports[0], "open"), ("gpu-02", ports[1], "answered")}
    assert results["gpu-02"]["busy"] == [ports[0]]
    assert heard == [b""]


def test_another_machine_at_the_address_is_a_stranger() -> None:
    ports = free_ports(1)
    results = together(
        {"gpu-01": "127.0.0.2", "gpu-02": "127.0.0.3"},
        ports,
        gpu_02={"token": "somebody else"},
        gpu_01={"grace_s": 0.5},
    )
    assert found(results["gpu-01"]) == {("gpu-02", ports[0], "stranger")}
    assert found(results["gpu-02"]) == {("gpu-01", ports[0], "answered")}


def test_a_peer_that_never_comes_up_is_refused() -> None:
    ports = free_ports(1)
    peers = [{"name": "gpu-02", "address": "127.0.0.3", "token": "x"}]
    args = {"name": "gpu-01", "address": "127.0.0.2", "token": "y", "ports": ports, "peers": peers}
    result = reach.main({**args, "connect_s": 0.2, "grace_s": 0.3}, unsaid)
    assert found(result) == {("gpu-02", ports[0], "refused")}


def test_a_port_that_is_turned_away_although_its_node_listens_is_rejected() -> None:
    """gpu-02 listens on one port less than it is asked for, as behind a firewall that answers with a reset."""
    ports = free_ports(2)
    results = together(
        {"gpu-01": "127.0.0.2", "gpu-02": "127.0.0.3"}, ports, gpu_02={"ports": ports[:1], "grace_s": 1.0}
    )
    assert found(results["gpu-01"]) == {("gpu-02", ports[0], "answered"), ("gpu-02", ports[1], "rejected")}


ADDRESSES = {NodeName("gpu-01"): "10.0.0.11", NodeName("gpu-02"): "10.0.0.12"}


def dial(source: str, target: str, port: int, how: Found) -> Dial:
    return Dial(NodeName(source), NodeName(target), port, how, "")


def test_all_through_is_no_error() -> None:
    tried = [dial("gpu-01", "gpu-02", 20000, Found.ANSWERED), dial("gpu-02", "gpu-01", 20000, Found.OPEN)]
    assert blocked("serve-0", tried, ADDRESSES, 20000) is None


def test_a_firewall_that_opens_only_the_rendezvous_port_is_told_as_one() -> None:
    tried = [
        dial("gpu-01", "gpu-02", 20000, Found.ANSWERED),
        dial("gpu-01", "gpu-02", 41877, Found.TIMEOUT),
        dial("gpu-02", "gpu-01", 20000, Found.ANSWERED),
        dial("gpu-02", "gpu-01", 41877, Found.ANSWERED),
    ]
    error = blocked("serve-0", tried, ADDRESSES, 20000)
    assert error is not None
    assert error.what == "serve-0: the private network is blocked for 1 of 2 pairs of nodes"
    assert error.context["found"] == "gpu-01 -> gpu-02 tcp/41877 timed out"
    assert error.why.startswith("port 20000 is open for all pairs, others are not")
    assert "between 10.0.0.11, 10.0.0.12 only" in error.fix


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (Found.REFUSED, "our listener on that node did not come up in time"),
        (Found.REJECTED, "a firewall turns the connection away"),
        (Found.STRANGER, "an address belongs to another machine"),
        (Found.UNREACHABLE, "a firewall or a missing route"),
    ],
)
def test_each_kind_of_failure_has_its_reason(how: Found, why: str) -> None:
    error = blocked("serve-0", [dial("gpu-01", "gpu-02", 20000, how)], ADDRESSES, 20000)
    assert error is not None
    assert why in error.why
    assert ("allow TCP" in error.fix) == (how is not Found.REFUSED)


def test_the_ports_are_the_runs_own_and_never_a_named_one() -> None:
    ports = random_ports("run serve-0", (32768, 32775), taken=(32768, 32769, 32770))
    assert len(set(ports)) == 3
    assert set(ports) <= {32771, 32772, 32773, 32774, 32775}
    assert ports == random_ports("run serve-0", (32768, 32775), taken=(32768, 32769, 32770))
    assert random_ports("a", (32768, 60999), ()) != random_ports("b", (32768, 60999), ())


def test_the_range_is_what_all_nodes_share() -> None:
    assert common_range([(32768, 60999), (15000, 61000), None]) == (32768, 60999)
    assert common_range([(10000, 20000), (30000, 40000)]) == (32768, 60999), "nothing in common: the kernel's default"


class Cluster:
    """Four nodes whose programs answer as told."""

    def __init__(self) -> None:
        self.profile = load_profile("h100x32")
        nodes_file = NodesFile(nodes=tuple(NodeEntry(name=name, address=name) for name in NAMES))
        self.phase = ReachPhase(NodeSite(self.profile, assign(self.profile, nodes_file), nodes_file, RUN))
        self.survey = FakeSurvey()
        self.facts = json.loads((FOLDER / "base/h100.json").read_text("utf-8"))["facts"]
        self.connected: set[str] = set()
        for index, name in enumerate(NAMES):
            self.survey.on("facts", self._facts(index), node=name)
            self.survey.on("connections", partial(self._connections, name), node=name)
        self.nodes = FakeNodes(*NAMES)
        self.found = Found.ANSWERED
        for node in self.nodes.each():
            node.on_program("reach", self._answer)
        self.clock = FakeClock()
        self.svc: Services = services(survey=self.survey, nodes=self.nodes, clock=self.clock, store=MemoryStore())

    def _facts(self, index: int) -> dict[str, Any]:
        text = json.dumps(self.facts).replace("10.0.0.219", f"10.0.0.{219 + index}")
        body: dict[str, Any] = json.loads(text)
        return {**body, "machine_id": f"machine-{index}"}

    def _connections(self, name: str, _question: Question) -> dict[str, Any]:
        row = {"local": "x", "remote": "10.0.0.219", "is_server": False, "count": 8}
        return {"connections": [row] if name in self.connected else []}

    def _answer(self, program: Program) -> Mapping[str, Any]:
        rows = [
            {"to": peer["name"], "port": port, "found": self.found, "detail": ""}
            for peer in program.args["peers"]
            for port in program.args["ports"]
        ]
        return {"busy": [], "dials": rows}

    @property
    def target(self) -> Target:
        return self.phase.targets()[0]

    def dial(self) -> None:
        plan = self.phase.plan(self.target, self.phase.probe(self.svc, self.target))
        for step in plan.steps:
            step.action.perform(self.svc, lambda *_args, **_kwargs: None)

    def is_proven(self) -> bool:
        return self.phase.verify(self.svc, self.target).is_ok


def test_one_program_on_each_node_dials_all_others() -> None:
    cluster = Cluster()
    cluster.dial()
    sent = {node.name: node.programs for node in cluster.nodes.each()}
    assert {name: len(programs) for name, programs in sent.items()} == dict.fromkeys(NAMES, 1)
    args = sent[NodeName("gpu-02")][0].args
    assert args["address"] == "10.0.0.220"
    assert [peer["address"] for peer in args["peers"]] == ["10.0.0.219", "10.0.0.221", "10.0.0.222"]
    assert args["ports"][0] == 20000
    assert all(32768 <= port <= 60999 for port in args["ports"][1:])
    tokens = {peer["token"] for peer in args["peers"]} | {args["token"]}
    assert len(tokens) == 4
    assert cluster.is_proven()


def test_a_fresh_record_counts_and_an_old_one_does_not() -> None:
    cluster = Cluster()
    cluster.dial()
    cluster.clock.advance(FRESH_S)
    assert cluster.is_proven()
    cluster.clock.advance(1)
    verdict = cluster.phase.verify(cluster.svc, cluster.target)
    assert verdict.summary == "last dialled 15 min 01 s ago, and no engine holds a connection"


def test_an_old_record_counts_while_every_follower_is_connected_to_the_head() -> None:
    cluster = Cluster()
    cluster.dial()
    cluster.clock.advance(7 * 24 * 3600)
    cluster.connected = {"gpu-02", "gpu-03"}
    assert not cluster.is_proven(), "gpu-04 is not connected"
    cluster.connected = {"gpu-02", "gpu-03", "gpu-04"}
    assert cluster.is_proven()


def test_another_machine_in_a_place_makes_the_record_worthless() -> None:
    cluster = Cluster()
    cluster.dial()
    cluster.survey.on("facts", {**cluster._facts(2), "machine_id": "a new one"}, node="gpu-03")
    assert not cluster.is_proven()


def test_blocked_pairs_fail_the_step_and_leave_no_record() -> None:
    cluster = Cluster()
    cluster.found = Found.TIMEOUT
    with pytest.raises(NodeError, match="blocked for 12 of 12 pairs"):
        cluster.dial()
    assert cluster.svc.store.get(Keys(RUN).artifact("reach/serve-0.json")) is None
    assert not cluster.is_proven()


def test_nodes_that_cannot_be_asked_are_all_named() -> None:
    cluster = Cluster()
    for name in ("gpu-02", "gpu-03"):
        cluster.nodes[name].error = NodeError(what=f"{name} is away", fix="look")
    with pytest.raises(PhaseFailed) as failed:
        cluster.dial()
    assert [failure.what for failure in failed.value.failures] == ["gpu-02 is away", "gpu-03 is away"]


def test_rows_of_the_program_are_read_back_as_dials() -> None:
    rows = {NodeName("gpu-01"): {"busy": [], "dials": [{"to": "gpu-02", "port": 1, "found": "open", "detail": "d"}]}}
    assert dials(rows) == (Dial(NodeName("gpu-01"), NodeName("gpu-02"), 1, Found.OPEN, "d"),)
