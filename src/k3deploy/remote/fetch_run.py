"""The fetch while it runs: who downloads what, who stands still, how much has landed."""

import os
import select
import sys
import time
from typing import Any

from k3deploy.remote import protocol
from k3deploy.remote.fetch_process import FetchProcess, Settings
from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.fetch_worker import RETRY
from k3deploy.remote.hub_cache import Repository, Wanted
from k3deploy.remote.job_folder import write_atomically
from k3deploy.remote.loader import script
from k3deploy.remote.protocol import Refusal, Say
from k3deploy.remote.tidy import drop_quarantined, free_bytes, make_way
from k3deploy.remote.weights_check import look

_TICK_S = 0.25
_SMALL_THREADS = 4
_SMALL_IN_HAND = 16
_WORKER = "fetch_worker"


class FetchRun:
    """One fetch. `args` are those of `fetch.main`; `missing` are the files that have to come from the Hub."""

    def __init__(
        self, args: dict[str, Any], repository: Repository, files: list[Wanted], missing: list[Wanted], say: Say
    ) -> None:
        self._repository = repository
        self._args = args
        self._say = say
        self._queue = FetchQueue(missing, wait_base_s=args["wait_base_s"])
        self._processes: list[FetchProcess] = []
        self._total_bytes = sum(file.size_bytes for file in files)
        self._done_bytes = self._total_bytes - sum(file.size_bytes for file in missing)
        self._files_total = len(files)
        self._files_done = len(files) - len(missing)
        self._note = ""
        self._settings = Settings(
            script=os.path.join(args["scratch"], "worker.py"),
            client=args["client"],
            hf_home=args["hf_home"],
            repo=args["manifest"]["repo"],
            commit=args["manifest"]["commit"],
            token=args["secrets"].get("hf_token"),
            environment=args["environment"],
        )
        write_atomically(self._settings.script, script(protocol.packed_modules, _WORKER, {}))

    def run(self) -> dict[str, Any]:
        try:
            while len(self._queue) or any(process.files for process in self._processes):
                self._employ()
                self._listen()
                self._end_stalled()
                self._keep_floor()
                self._tell()
        finally:
            for process in self._processes:
                process.kill()
        return {"retries": self._queue.retries, "stalls": self._queue.stalls}

    def _employ(self) -> None:
        """Give work to whoever has room: one process for all small files, the others one big file each."""
        now = time.monotonic()
        for is_small in (True, False):
            while (item := self._queue.next(now, is_small=is_small)) is not None:
                process = self._with_room(is_small=is_small, has_xet=item.has_xet)
                if process is None:
                    self._queue.dropped(item.file.path)
                    break
                process.give(item.file)

    def _with_room(self, *, is_small: bool, has_xet: bool) -> FetchProcess | None:
        """A process that can take one more such file; a new one where the number allows it."""
        kind = _SMALL_THREADS if is_small else 1
        in_hand = _SMALL_IN_HAND if is_small else 1
        same = [p for p in self._processes if p.threads == kind]
        for process in same:
            if process.has_xet == has_xet and len(process.files) < in_hand:
                return process
        if len(same) >= (1 if is_small else self._args["in_flight"]):
            idle = [process for process in same if not process.files]
            if not idle:
                return None
            self._end(idle[0])  # it goes the other way to the Hub, which is settled when it starts
        process = FetchProcess(self._settings, self._repository, threads=kind, has_xet=has_xet)
        self._processes.append(process)
        return process

    def _listen(self) -> None:
        ready, _, _ = select.select(self._processes, [], [], _TICK_S)
        for process in ready:
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
            who = "with a token" if self._settings.token else "without a token, whose limits are lower"
            self._remark(f"the Hub's rate limit (429, {who}): waiting {progress['wait_s']:.0f} s")
        elif "file" in progress:
            self._has_ended(process, progress["file"], progress["failure"])

    def _has_ended(self, process: FetchProcess, path: str, failure: dict[str, Any] | None) -> None:
        file = process.files.pop(path)
        if failure is None:
            _found, faults = look(self._repository, [file])
            if not faults:
                self._done_bytes += file.size_bytes
                self._files_done += 1
                return
            # "Download complete" is said of short files too; the next try must not find this one.
            failure = _failure(f"found {faults[0].found}, wanted {faults[0].wanted}")
            make_way(self._repository, file, is_bad=False)
        pause_s = self._queue.failed(path, failure, time.monotonic())
        self._remark(f"{path}: {failure['text']}; again in {pause_s:.0f} s")

    def _has_died(self, process: FetchProcess) -> None:
        was_ready = process.is_ready
        files = self._end(process)
        if not was_ready:
            raise Refusal(
                "the Hub's client does not start on this node",
                why=process.fault or f"exit code {process.exit_code}; its own words are in the job's log",
                fix="look at the log; `k3deploy up` sends the client anew when its folder is removed",
                path=self._args["client"],
                kind="hub",
            )
        for file in files:
            failure = _failure(f"the client died (exit code {process.exit_code})")
            self._queue.failed(file.path, failure, time.monotonic())

    def _end_stalled(self) -> None:
        stall_s = self._args["stall_s"]
        for process in list(self._processes):
            if process.idle_s() > stall_s:
                for file in self._end(process):
                    item = self._queue.stalled(file.path, stall_s)
                    road = "with Xet" if item.has_xet else "without Xet"
                    self._remark(f"{file.path}: no byte for {stall_s:.0f} s, taken up again {road}")

    def _end(self, process: FetchProcess) -> list[Wanted]:
        self._processes.remove(process)
        return process.kill()

    def _keep_floor(self) -> None:
        free, floor = free_bytes(self._repository), self._args["floor_bytes"]
        if free >= floor:
            return
        drop_quarantined(self._repository)
        if free_bytes(self._repository) < floor:
            raise Refusal(
                f"the disk of {self._repository.hub} is nearly full: the fetch was stopped",
                why="something else takes its space",
                fix="free space on that disk, then run the same command again: finished files are kept",
                found=f"{free} bytes free",
                wanted=f"at least {floor} bytes",
                kind="disk",
            )

    def _tell(self) -> None:
        done = self._done_bytes + sum(process.partial_bytes() for process in self._processes)
        self._say(
            {
                # Stable words: what changes with every look is in the numbers.
                "message": f"fetching weights ({self._note})" if self._note else "fetching weights",
                "done": done,
                "total": self._total_bytes,
                "files_done": self._files_done,
                "files_total": self._files_total,
            }
        )

    def _remark(self, text: str) -> None:
        self._note = text
        print(text, file=sys.stderr, flush=True)


def _failure(text: str) -> dict[str, Any]:
    return {"kind": RETRY, "text": text, "wait_s": 0.0}
