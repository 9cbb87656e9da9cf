"""Talk to the tracker from a thread of its own: a report goes out, its answer comes back, and wakes the fetch.

Strictly one after the other: the report after an answer must name what that answer granted.
"""

import contextlib
import http.client
import json
import os
import threading
import time
from typing import Any, NamedTuple

from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.share_protocol import REPORT, Me
from k3deploy.remote.tracker_answer import Answer, parse_answer
from k3deploy.remote.tracker_choice import TrackerChoice

# The tracker answers within milliseconds, but asks all nodes first when it has just become one.
_ANSWER_S = 2.0
_AGAIN_S = 0.2
_ANSWER_MOST_BYTES = 4 << 20
_GOODBYE_S = 3.0


class Exchange(NamedTuple):
    """A report and what came of it; None: nobody answered."""

    report: dict[str, Any]
    answer: Answer | None


class TrackerLink:
    """Shares listen on one of `ports`. `fileno` is readable when there is something to `take`."""

    def __init__(self, peers: PeerList, ports: list[int], me: Me) -> None:
        self._peers = peers
        self._ports = ports
        self._me = me
        self._known_ports: dict[str, int] = {}
        self._connection: tuple[str, int, http.client.HTTPConnection] | None = None
        self._choice = TrackerChoice(time.monotonic())
        self._woken, self._wake = os.pipe()
        self._turn = threading.Condition()
        self._report: dict[str, Any] | None = None
        self._due = 0.0
        self._ended_at = float("-inf")
        self._is_busy = False
        self._is_closing = False
        self._exchanges: list[Exchange] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._woken

    @property
    def wants_report(self) -> bool:
        """False while one is on its way or its answer was not taken yet."""
        with self._turn:
            return not self._is_busy and not self._exchanges

    def offer(self, report: dict[str, Any], within_s: float) -> None:
        """The newest report; it goes out `within_s` seconds after the last one, and a newer one may take its place.

        A newer one never waits longer than the one whose place it takes.
        """
        with self._turn:
            due = self._ended_at + within_s
            self._due = due if self._report is None else min(due, self._due)
            self._report = report
            self._turn.notify()

    def take(self) -> list[Exchange]:
        """What came since the last time."""
        with self._turn:
            exchanges, self._exchanges = self._exchanges, []
            if exchanges:
                os.read(self._woken, len(exchanges))
            return exchanges

    def close(self, report: dict[str, Any] | None) -> None:
        """End, after a last report where there is one."""
        with self._turn:
            self._is_closing = True
            self._report = report
            self._due = 0.0
            self._turn.notify()
        self._thread.join(_GOODBYE_S)
        if not self._thread.is_alive():
            os.close(self._woken)
            os.close(self._wake)

    def _work(self) -> None:
        while True:
            with self._turn:
                while not self._is_closing and (self._report is None or time.monotonic() < self._due):
                    wait_s = None if self._report is None else max(0.0, self._due - time.monotonic())
                    self._turn.wait(wait_s)
                report, self._report = self._report, None
                self._is_busy = True
            if report is None:
                self._hang_up()
                return
            answer = self._ask(json.dumps(report, separators=(",", ":")).encode())
            with self._turn:
                self._is_busy = False
                self._ended_at = time.monotonic()
                self._exchanges.append(Exchange(report, answer))
                os.write(self._wake, b".")

    def _ask(self, body: bytes) -> Answer | None:
        while True:
            answer = self._ask_in_turn(body)
            if answer is not None or not self._choice.is_settling(time.monotonic()):
                return answer
            time.sleep(_AGAIN_S)

    def _ask_in_turn(self, body: bytes) -> Answer | None:
        nodes = self._peers.nodes()
        for attempt in self._choice.attempts(list(nodes), time.monotonic()):
            for _ in range(attempt.times):
                answer = self._ask_node(attempt.node, nodes[attempt.node], body, attempt.connect_s)
                if answer is not None:
                    self._choice.answered(attempt.node, time.monotonic())
                    return answer
        return None

    def _ask_node(self, node: str, address: str, body: bytes, connect_s: float) -> Answer | None:
        known = self._known_ports.get(node)
        for port in sorted(self._ports, key=lambda port: port != known):
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                answer = self._post(address, port, body, connect_s)
                self._known_ports[node] = port
                return answer
            self._hang_up()  # nobody there, another run's share, or a connection that has died meanwhile
        return None

    def _post(self, address: str, port: int, body: bytes, connect_s: float) -> Answer:
        """Raises OSError, HTTPException or ValueError where no tracker of ours answers."""
        if self._connection is None or self._connection[:2] != (address, port):
            self._hang_up()
            connection = self._me.connection(address, port, connect_s)
            connection.connect()
            self._connection = (address, port, connection)
        connection = self._connection[2]
        connection.sock.settimeout(_ANSWER_S)
        headers = {"Authorization": self._me.authorization, "Content-Type": "application/json"}
        connection.request("POST", REPORT, body, headers)
        response = connection.getresponse()
        text = response.read(_ANSWER_MOST_BYTES)
        if response.status != 200:
            raise ValueError(f"HTTP status {response.status}")
        return parse_answer(text)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection[2].close()
            self._connection = None
