"""The fetch while it runs: who brings what, who stands still, how much has landed. One thread, woken by `select`."""

import select
import sys
import time
from typing import Any

from k3deploy.remote.fetch_failure import RETRY, STOPPED, failure
from k3deploy.remote.fetch_ledger import Ledger
from k3deploy.remote.fetch_policy import Moving, Policy
from k3deploy.remote.fetch_process import FetchProcess, InHand
from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.fetch_roads import Roads
from k3deploy.remote.fetch_space import keep_floor
from k3deploy.remote.hub_cache import Repository
from k3deploy.remote.protocol import Refusal, Say

_TICK_S = 0.25


class FetchRun:
    """One fetch. `args` are those of `fetch.main`."""

    def __init__(
        self,
        args: dict[str, Any],
        repository: Repository,
        queue: FetchQueue,
        policy: Policy,
        ledger: Ledger,
        say: Say,
    ) -> None:
        self._repository = repository
        self._floor_bytes = args["floor_bytes"]
        self._stall_s = args["stall_s"]
        has_token = bool(args["secrets"].get("hf_token"))
        self._whose_limits = "with a token" if has_token else "without a token, whose limits are lower"
        self._roads = Roads(args, repository, policy.me)
        self._queue = queue
        self._policy = policy
        self._ledger = ledger
        self._say = say
        self._note = ""

    def run(self) -> None:
        """Until everything wanted is here and proved. Raises Refusal."""
        try:
            self._roads.start(min(self._ledger.wanted.values(), key=lambda file: file.size_bytes))
            while self._ledger.wanted:
                self._employ()
                self._listen()
                self._ledger.save()
                self._end_stalled()
                keep_floor(self._repository, self._floor_bytes)
                self._turn()
        finally:
            self._roads.end_all()
            self._ledger.save()  # stopped half-way: what was hashed need not be hashed again
            self._policy.close(is_complete=not self._ledger.wanted)

    def _employ(self) -> None:
        """Give work to whoever has room."""
        now = time.monotonic()
        for is_small in (True, False):
            while (item := self._queue.next(now, is_small=is_small)) is not None:
                if not self._roads.give(item):
                    self._queue.dropped(item.file.path)
                    break
        while self._roads.can_receive and (pull := self._policy.next_pull(now)) is not None:
            self._roads.receive(pull)

    def _listen(self) -> None:
        readers = [*self._roads.processes, *self._policy.readers()]
        ready, _, _ = select.select(readers, [], [], _TICK_S)
        for process in ready:
            if not isinstance(process, FetchProcess):
                continue  # whoever it is for hears it in its turn
            words = process.hear()
            if words is None:
                self._has_died(process)
                continue
            for word in words:
                self._understand(process, word)

    def _understand(self, process: FetchProcess, word: dict[str, Any]) -> None:
        progress = word.get("progress", {})
        process.fault = word.get("fault", process.fault)
        if "ready" in progress:
            process.ready()
        elif "wait_s" in progress:
            process.be_patient(progress["wait_s"])
            self._remark(f"the Hub's rate limit (429, {self._whose_limits}): waiting {progress['wait_s']:.0f} s")
        elif "landed" in progress:
            process.landed(progress["landed"])
        elif "file" in progress:
            self._has_ended(process, progress)

    def _has_ended(self, process: FetchProcess, word: dict[str, Any]) -> None:
        file, moved_bytes = process.finished(word["file"])
        link = self._ledger.lan if process.road.is_peer else self._ledger.hub
        link.came(file, moved_bytes)
        problem = word["failure"] or self._ledger.accept(file, word)
        if problem is None:
            self._queue.withdraw(file.path)
            self._policy.proved(file)
        elif process.road.is_peer:
            self._policy.pull_ended(file.path, {**word, "failure": problem}, time.monotonic())
        elif problem["kind"] != STOPPED:
            self._has_failed(file.path, problem)

    def _has_failed(self, path: str, problem: dict[str, Any]) -> None:
        try:
            pause_s = self._queue.failed(path, problem, time.monotonic())
        except Refusal as refusal:
            self._policy.give_up(path, refusal)
            return
        self._remark(f"{path}: {problem['text']}; again in {pause_s:.0f} s")

    def _has_died(self, process: FetchProcess) -> None:
        was_ready = process.is_ready
        left = self._roads.end(process)
        if not was_ready:
            raise _no_start(process)
        text = f"{process.road.words} died (exit code {process.exit_code})"
        for each in left:
            if process.road.is_peer:
                self._pull_failed(each.file.path, text)
            elif (
                not each.is_unwanted
            ):  # counted when it had only to be hashed too: else one that kills goes on for ever
                self._has_failed(each.file.path, failure(RETRY, text))

    def _end_stalled(self) -> None:
        for process in list(self._roads.processes):
            process.look()
            if process.is_deaf:
                for each in self._roads.end(process):
                    if not each.is_unwanted:
                        self._queue.dropped(each.file.path)
            elif process.idle_s > self._stall_s:
                for each in self._roads.end(process):
                    self._has_stalled(process, each)

    def _has_stalled(self, process: FetchProcess, each: InHand) -> None:
        path, stall_s = each.file.path, self._stall_s
        if process.road.is_peer:
            self._pull_failed(path, f"no byte for {stall_s:.0f} s")
            return
        try:
            item = self._queue.stalled(path, stall_s)
        except Refusal as refusal:
            self._policy.give_up(path, refusal)
            return
        road = "with Xet" if item.has_xet else "without Xet"
        self._remark(f"{path}: no byte for {stall_s:.0f} s, taken up again {road}")

    def _pull_failed(self, path: str, text: str) -> None:
        self._policy.pull_ended(path, {"failure": failure(RETRY, text), "was_killed": True}, time.monotonic())

    def _turn(self) -> None:
        """Measure, ask what is to stop, and tell how far it is."""
        now = time.monotonic()
        origin = [process for process in self._roads.processes if not process.road.is_peer]
        peers = [process for process in self._roads.processes if process.road.is_peer]
        self._ledger.sample(now, origin, peers)
        hub, lan = self._ledger.hub, self._ledger.lan
        is_ready = any(process.is_ready for process in origin)
        moving = Moving(
            from_origin=_landing(origin),
            from_peers=_landing(peers),
            hub_bytes=hub.recent.moved_bytes,
            hub_large_bytes=hub.meter.moved_bytes,
            hub_bps=hub.meter.bps,
            lan_bps=lan.meter.bps,
            is_origin_ready=is_ready,
        )
        unwanted = set(self._policy.turn(moving, now))
        for process in origin:
            for path in unwanted.intersection(process.landing_bytes()):
                process.stop(path)
        landing_bytes = sum({**moving.from_origin, **moving.from_peers}.values())
        self._say(self._ledger.progress(self._note, landing_bytes, self._policy.told()))

    def _remark(self, text: str) -> None:
        self._note = text
        print(text, file=sys.stderr, flush=True)


def _no_start(process: FetchProcess) -> Refusal:
    client = process.road.settings.get("client")
    remedy = (
        "`k3deploy up` sends the client anew when its folder is removed" if client else "then run `k3deploy up` again"
    )
    return Refusal(
        f"{process.road.words} does not start on this node",
        why=process.fault or f"exit code {process.exit_code}; its own words are in the job's log",
        fix=f"look at the log; {remedy}",
        path=client or process.road.entry,
        kind="hub",
    )


def _landing(processes: list[FetchProcess]) -> dict[str, int]:
    return {path: size for process in processes for path, size in process.landing_bytes().items()}
