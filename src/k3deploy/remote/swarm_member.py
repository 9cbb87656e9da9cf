"""A node of a swarm while it fetches: what its plan decides, carried to the tracker, to peers and to its own share."""

from collections.abc import Sequence
from typing import Any

from k3deploy.remote.disk_rate import MOST_BYTES, DiskRate
from k3deploy.remote.fetch_policy import Moving, Pull
from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.fetch_space import free_bytes
from k3deploy.remote.hub_cache import Repository, Wanted, manifest_digest
from k3deploy.remote.leases_file import LeasesFile
from k3deploy.remote.origin_health import OriginHealth
from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.share_protocol import Me
from k3deploy.remote.standstill import Standstill
from k3deploy.remote.swarm_plan import SwarmPlan
from k3deploy.remote.tidy import make_way
from k3deploy.remote.tracker_answer import Answer
from k3deploy.remote.tracker_link import TrackerLink

_REPORT_S = 0.5
# Something new that others wait for; nothing to do here but wait for others.
_NEWS_REPORT_S = 0.1
_WAITING_REPORT_S = 0.2
# Nobody in the whole swarm has got anything for so many stalls, and nothing was wrong here.
_STUCK_STALLS = 3


class SwarmMember:
    """The policy of a fetch in a swarm. `args` are those of `fetch.main`; `lacking`: what has to come or be proved."""

    def __init__(
        self,
        args: dict[str, Any],
        repository: Repository,
        peers: PeerList,
        me: Me,
        queue: FetchQueue,
        plan: SwarmPlan,
        lacking: list[Wanted],
    ) -> None:
        self.me: Me | None = me
        self._repository = repository
        self._queue = queue
        self._plan = plan
        self._peers = peers
        self._ports: list[int] = args["swarm"]["ports"]
        self._strategy: str = args["strategy"]
        self._who = {
            "run": args["swarm"]["run"],
            "node": args["swarm"]["node"],
            "manifest": manifest_digest(args["manifest"]),
            "strategy": self._strategy,
        }
        self._lacking = {file.path: file for file in lacking}
        # Files that do not go through the swarm, as long as there is hope for them.
        self._own = {file.path: file for file in lacking if not file.is_sha256}
        queue.offer(self._own.values())
        self._health = OriginHealth(args["wait_base_s"])
        self._standstill = Standstill()
        self._stall_s: float = args["stall_s"]
        self._refusal: Refusal | None = None
        self._answer: Answer | None = None
        self._moving = Moving({}, {}, 0, 0, 0.0, 0.0, is_origin_ready=False)
        self._has_news = self._could_begin = False
        self._leases = LeasesFile(args["scratch"])
        self._disk = DiskRate(repository.blobs) if self._strategy == "auto" and self._has_room(args) else None
        self._link = TrackerLink(peers, self._ports, me)
        self._link.offer(self._report(self._moving), 0.0)

    def readers(self) -> Sequence[Any]:
        return (self._link,)

    def turn(self, moving: Moving, now: float) -> list[str]:
        self._health.look(moving.hub_bytes, self._queue.retries + self._queue.stalls, now)
        unwanted: list[str] = []
        for exchange in self._link.take():
            if exchange.answer is None:
                self._plan.go_alone()
            else:
                self._answer = self._of_known_nodes(exchange.answer)
                unwanted += self._plan.learn(self._answer, exchange.report["failed"], moving)
        self._plan.tidy_up(self._health)
        could_begin = self._plan.could_begin(moving, self._health)
        self._has_news = self._has_news or (could_begin and not self._could_begin)
        self._moving, self._could_begin = moving, could_begin
        if self._link.wants_report:
            self._link.offer(self._report(moving), self._report_within_s())
            self._has_news = False
        self._leases.write(self._plan.leases(moving), now)
        self._end_when_stuck(moving, now)
        return unwanted

    def next_pull(self, now: float) -> Pull | None:
        choice = self._plan.next_pull(self._moving, now)
        if choice is None or choice.holders is None:
            return choice and Pull(choice.file, None, choice.is_fresh)
        nodes = self._peers.nodes()
        sources = [{"name": name, "address": nodes[name], "ports": self._ports} for name in choice.holders]
        return Pull(choice.file, sources, choice.is_fresh)

    def pull_ended(self, path: str, word: dict[str, Any], now: float) -> None:
        if self._plan.pull_ended(path, word, now):
            make_way(self._repository, self._lacking[path], is_bad=True)

    def give_up(self, path: str, refusal: Refusal) -> None:
        if refusal.context["kind"] == "disk" or self._plan.is_alone:
            raise refusal
        self._refusal = self._refusal or refusal
        self._own.pop(path, None)
        self._plan.give_up(path)

    def proved(self, file: Wanted) -> None:
        self._own.pop(file.path, None)
        self._plan.proved(file)
        self._has_news = True

    def told(self) -> dict[str, Any]:
        if self._answer is None:
            return {}
        bounds_s = self._answer.bounds_s
        return {"bound_s": bounds_s.get(self._strategy), "hub_bound_s": bounds_s.get("hub")}

    def close(self, *, is_complete: bool) -> None:
        self._link.close(self._report(self._moving) if is_complete else None)

    def _report(self, moving: Moving) -> dict[str, Any]:
        disk_bps = self._disk.bps if self._disk else None
        return {**self._who, **self._plan.report(moving, self._health), "disk_bps": disk_bps}

    def _report_within_s(self) -> float:
        if self._has_news:
            return _NEWS_REPORT_S
        return _WAITING_REPORT_S if self._plan.is_idle else _REPORT_S

    def _of_known_nodes(self, answer: Answer) -> Answer:
        """A node that joined a moment ago may be known to the tracker before it is known here."""
        nodes = self._peers.nodes()
        known = {index: [name for name in names if name in nodes] for index, names in answer.holders.items()}
        return answer._replace(holders={index: names for index, names in known.items() if names})

    def _end_when_stuck(self, moving: Moving, now: float) -> None:
        """Raise Refusal when neither this node nor any other gets on. What can be had from peers is here by then."""
        others = self._answer.hub_bytes if self._answer else 0
        still_s = self._standstill.for_s((self._plan.progress_mark(), moving.hub_bytes, others), now)
        if not self._plan.is_idle or self._own:
            return
        refusal = self._refusal or (self._queue.last_refusal if self._health.is_down else None)
        if refusal is not None and still_s > self._health.patience_s:
            raise refusal
        if still_s > max(self._health.patience_s, _STUCK_STALLS * self._stall_s):
            raise Refusal(
                "the swarm stands still",
                why=f"for {still_s:.0f} s no node has got anything, and this one was given nothing to do",
                fix="look at the jobs of the other nodes, then run the same command again: finished files are kept",
                kind="hub",
            )

    def _has_room(self, args: dict[str, Any]) -> bool:
        needed: int = sum(file.size_bytes for file in self._lacking.values()) + args["floor_bytes"]
        return free_bytes(self._repository) - needed > MOST_BYTES
