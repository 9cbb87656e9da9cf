"""How fast weights reach every node and how fast they are proved, against rivals and bounds of the same run.

As root on Debian, with labs of its own. Names on the command line choose parts; without any, all are run:
  swarm   4 nodes, Hub 100 Mbit/s a node, private network 1 Gbit/s, 96 files, 1.2 GB (medians of 3): at most 1.15 x the
          payload bound of 24 s, Hub bytes at most 1.02 x the checkpoint
  hub, hf the same by strategy `hub` and by `hf download` on each node: at least 3.5 x as long as `swarm`
  uneven  one node's Hub link at 25 Mbit/s: at most 1.2 x its bound
  kill    a node dies half-way: the others finish; the Hub sends nothing twice but what was in the dead node's hands
          and what it alone held
  auto    private network of 1000, 200, 50, 10 Mbit/s: `auto` within 5 % of the better of `hub` and `swarm`
  rack    18 nodes, Hub 2 Mbit/s a node, private network 200 Mbit/s, 108 files, 0.4 GB: Hub bytes at most 1.02 x the
          checkpoint, at most 1.25 x the bound. (96 files do not divide by 18: the bound, which knows no files, would be
          missed by 12.5 % before anything has happened.)
  verify  full proof of 6.4 GB, cold (medians of 5): at least 0.85 of the lower of what fio reads and what all cores
          hash, at least 2.0 x `hf cache verify`
  quick   a quick look at 96 shards with real header sizes: at most 3 s of CPU; at the lab's: at most 1 s
A fetch counts from its first step to the last node's proof, an `hf download` from its start to its last byte.
Exits 1 when a bound is broken. The load average stands beside each figure: on a busy machine they mean little.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import quick_look, weights_hash
from tests.bench import weights_bound as bound
from tests.bench.weights_cluster import Cluster, Fetched
from tests.bench.weights_kill import kill_half_way

ROUNDS = 3
HUB_MBIT, SLOW_HUB_MBIT, LAN_MBIT = 100, 25, 1000
AUTO_LAN_MBIT = (1000, 200, 50, 10)
# Two cores carry 18 nodes when the links are slow: starting that many clients takes them ten seconds.
RACK_NODES, RACK_HUB_MBIT, RACK_LAN_MBIT = 18, 2, 200


@dataclass
class Report:
    """The figures so far, printed as they come, and whether one broke its bound."""

    is_broken: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    def fetched(self, name: str, runs: list[Fetched], cluster: Cluster, bound_s: float) -> None:
        """Figures of a way to fetch."""
        self.seconds[name] = statistics.median(run.seconds for run in runs)
        times = ", ".join(f"{run.seconds:.1f}" for run in runs)
        shares = ", ".join(f"{run.hub_bytes / cluster.expected.total_bytes:.3f}" for run in runs)
        loads = ", ".join(f"{run.load:.1f}" for run in runs)
        print(f"{name:<24} {times} s (bound {bound_s:.1f})   Hub bytes {shares} x   load {loads}", flush=True)

    def at_most(self, name: str, value: float, most: float) -> None:
        self._check(f"{name}, at most {most}", value, is_ok=value <= most)

    def at_least(self, name: str, value: float, least: float) -> None:
        self._check(f"{name}, at least {least}", value, is_ok=value >= least)

    def _check(self, name: str, value: float, *, is_ok: bool) -> None:
        self.is_broken |= not is_ok
        print(f"  {name:<64} {value:8.3f} {'ok' if is_ok else 'BROKEN'}", flush=True)


def swarm(cluster: Cluster, report: Report) -> None:
    cluster.shape([HUB_MBIT] * 4, LAN_MBIT)
    bound_s = bound.swarm_s(cluster.expected.total_bytes, cluster.hub_mbit, LAN_MBIT)
    runs = [cluster.fetch("swarm") for _ in range(ROUNDS)]
    report.fetched("swarm", runs, cluster, bound_s)
    report.at_most("swarm / payload bound", report.seconds["swarm"] / bound_s, 1.15)
    report.at_most("swarm: Hub bytes / checkpoint", most_hub_bytes(runs, cluster), 1.02)


def hub(cluster: Cluster, report: Report) -> None:
    cluster.shape([HUB_MBIT] * 4, LAN_MBIT)
    bound_s = bound.plain_s(cluster.expected.total_bytes, cluster.hub_mbit)
    report.fetched("hub", [cluster.fetch("hub")], cluster, bound_s)
    if "swarm" in report.seconds:
        report.at_least("hub / swarm", report.seconds["hub"] / report.seconds["swarm"], 3.5)


def hf(cluster: Cluster, report: Report) -> None:
    cluster.shape([HUB_MBIT] * 4, LAN_MBIT)
    bound_s = bound.plain_s(cluster.expected.total_bytes, cluster.hub_mbit)
    report.fetched("hf download", [cluster.hf_download()], cluster, bound_s)
    if "swarm" in report.seconds:
        report.at_least("hf download / swarm", report.seconds["hf download"] / report.seconds["swarm"], 3.5)


def uneven(cluster: Cluster, report: Report) -> None:
    cluster.shape([HUB_MBIT] * 3 + [SLOW_HUB_MBIT], LAN_MBIT)
    bound_s = bound.swarm_s(cluster.expected.total_bytes, cluster.hub_mbit, LAN_MBIT)
    runs = [cluster.fetch("swarm") for _ in range(ROUNDS)]
    report.fetched("swarm, uneven links", runs, cluster, bound_s)
    report.at_most("uneven / bound", report.seconds["swarm, uneven links"] / bound_s, 1.2)
    report.at_most("uneven: Hub bytes / checkpoint", most_hub_bytes(runs, cluster), 1.02)


def kill(cluster: Cluster, report: Report) -> None:
    cluster.shape([HUB_MBIT] * 4, LAN_MBIT)
    killed = kill_half_way(cluster, "bench", cluster.lab.nodes[-1])
    bound_s = bound.swarm_s(cluster.expected.total_bytes, cluster.hub_mbit[:3], LAN_MBIT)
    report.fetched("swarm, one killed", [killed.fetched], cluster, bound_s)
    print(f"  from the Hub twice: {killed.twice_bytes / 1e6:.1f} MB")
    report.at_most("of these needless, MB", killed.needless_bytes / 1e6, 0.0)


def auto(cluster: Cluster, report: Report) -> None:
    size = cluster.expected.total_bytes
    hubs = [HUB_MBIT] * 4
    cluster.shape(hubs, AUTO_LAN_MBIT[0])
    if "hub" not in report.seconds:
        report.fetched("hub", [cluster.fetch("hub")], cluster, bound.plain_s(size, hubs))
    for lan in AUTO_LAN_MBIT:
        cluster.shape(hubs, lan)
        best_s = report.seconds["hub"]
        if (bound_s := bound.swarm_s(size, hubs, lan)) < best_s:
            name = f"swarm, LAN {lan} Mbit/s"
            report.fetched(name, [cluster.fetch("swarm")], cluster, bound_s)
            best_s = min(best_s, report.seconds[name])
        name = f"auto, LAN {lan} Mbit/s"
        report.fetched(name, [cluster.fetch("auto")], cluster, bound.best_s(size, hubs, lan))
        report.at_most(f"{name} / the best strategy", report.seconds[name] / best_s, 1.05)


def rack(report: Report) -> None:
    with Cluster.up("bench-rack", profile="lab-gb300-nvl72", nodes=RACK_NODES, variant="bench108") as cluster:
        cluster.shape([RACK_HUB_MBIT] * RACK_NODES, RACK_LAN_MBIT)
        bound_s = bound.swarm_s(cluster.expected.total_bytes, cluster.hub_mbit, RACK_LAN_MBIT)
        runs = [cluster.fetch("swarm")]
        report.fetched("swarm, 18 nodes", runs, cluster, bound_s)
        report.at_most("18 nodes / bound", report.seconds["swarm, 18 nodes"] / bound_s, 1.25)
        report.at_most("18 nodes: Hub bytes / checkpoint", most_hub_bytes(runs, cluster), 1.02)


def verify(report: Report) -> None:
    speeds = weights_hash.measure()
    report.at_least("full proof / (fio or cores, whichever is lower)", speeds.ours / speeds.limit, 0.85)
    report.at_least("full proof, whole command / hf cache verify", speeds.ours_in_all / speeds.hf, 2.0)


def quick(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        real = quick_look.at_real_size(Path(folder) / "real")
        lab = quick_look.on_the_lab(Path(folder) / "lab")
    report.at_most("quick look at real header sizes, s of CPU", statistics.median(cost.cpu_s for cost in real), 3.0)
    report.at_most("quick look at the lab's 96 shards, s", statistics.median(cost.wall_s for cost in lab), 1.0)


def most_hub_bytes(runs: list[Fetched], cluster: Cluster) -> float:
    return max(run.hub_bytes for run in runs) / cluster.expected.total_bytes


FOUR_NODES: dict[str, Callable[[Cluster, Report], None]] = {
    "swarm": swarm,
    "hub": hub,
    "hf": hf,
    "uneven": uneven,
    "kill": kill,
    "auto": auto,
}
OTHERS: dict[str, Callable[[Report], None]] = {"rack": rack, "verify": verify, "quick": quick}


def main() -> int:
    wanted = sys.argv[1:] or [*FOUR_NODES, *OTHERS]
    if unknown := set(wanted) - {*FOUR_NODES, *OTHERS}:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join([*FOUR_NODES, *OTHERS])}")
        return 2
    report = Report()
    if any(name in wanted for name in FOUR_NODES):
        with Cluster.up("bench-weights", profile="lab-h100x32", nodes=4, variant="bench") as cluster:
            for name, act in FOUR_NODES.items():
                if name in wanted:
                    act(cluster, report)
    for name, measure in OTHERS.items():
        if name in wanted:
            measure(report)
    return 1 if report.is_broken else 0


if __name__ == "__main__":
    sys.exit(main())
