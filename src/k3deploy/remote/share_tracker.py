"""The tracker as part of a share: let reports in, keep the lease queue whole, learn the world when it was out of it."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from k3deploy.remote.lease_queue import LeaseQueue
from k3deploy.remote.share_http import Answer, error_answer, json_answer
from k3deploy.remote.share_peers import Peers
from k3deploy.remote.share_report import BadReport, parse_json, parse_report

# Without a report for so long, others may have reported elsewhere: what is known is asked for anew before it is used.
_STALE_S = 3.0
# Nodes that did not report for so long are asked by way of their shares: they may be done, or gone, or look elsewhere.
_SILENT_S = 3.0


class Tracker:
    """`manifest`: its digest; `sizes`: of the files that go through the swarm."""

    def __init__(self, *, run: str, manifest: str, sizes: Mapping[int, int], peers: Peers) -> None:
        self._run = run
        self._manifest = manifest
        self._sizes = dict(sizes)
        self._peers = peers
        self._queue = LeaseQueue(self._sizes)
        self._lock = threading.Lock()
        self._reported_at = float("-inf")
        self._asked_at = float("-inf")

    def answer(self, body: bytes, address: str) -> Answer:
        """To `POST /v1/report`."""
        try:
            told = parse_json(body)
            refusal = self._refusal(told, address)
            if refusal is not None:
                return refusal
            report = parse_report(told, self._sizes)
        except BadReport as bad:
            return error_answer(400, f"the report makes no sense: {bad}")
        with self._lock:
            if time.monotonic() - self._reported_at > _STALE_S:
                self._learn(report.node)
            now = self._reported_at = time.monotonic()
            self._queue.order = list(self._peers.nodes())
            answer = self._queue.answer(report, now)
        return json_answer(answer)

    def is_complete(self) -> bool:
        """Whether every node of the run has every file."""
        with self._lock:
            return self._queue.is_complete()

    def tend(self) -> None:
        """Ask after silent nodes while others report. Call it about every second."""
        now = time.monotonic()
        is_at_work = now - self._reported_at < _STALE_S + _SILENT_S
        if not is_at_work or now - self._asked_at < _SILENT_S:
            return
        self._asked_at = now
        with self._lock:
            silent = self._queue.silent(now, _SILENT_S)
        states = self._peers.states(silent)
        with self._lock:
            now = time.monotonic()
            for name in self._queue.silent(now, _SILENT_S):  # who has reported meanwhile knows better
                if name in states:
                    self._queue.learn(name, *states[name], now)

    def _learn(self, reporter: str) -> None:
        states = self._peers.states(name for name in self._peers.nodes() if name != reporter)
        for name, state in states.items():
            self._queue.learn(name, *state, time.monotonic())

    def _refusal(self, told: dict[str, Any], address: str) -> Answer | None:
        if told.get("run") != self._run:
            return error_answer(409, f"this is run {self._run}")
        if told.get("manifest") != self._manifest:
            return error_answer(409, "this node shares other files: its manifest is " + self._manifest)
        if self._peers.nodes().get(str(told.get("node"))) != address:
            return error_answer(403, f"{told.get('node')!r} is not the node at {address}"[:200])
        return None
