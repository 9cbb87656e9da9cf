"""What a quick look costs at Kimi K3's real header sizes: at most 3 s of CPU in all, and under a second on the lab's.

`python -m tests.bench.quick_look`, as any user. Builds 96 shards of 5,376 tensors (their data are holes) and an index
of 62 MB, and looks at them with the program and the Python that nodes use; then at the lab's 96 shards with the command
as it is typed. Medians of ROUNDS. Exits 1 when a bound is broken.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from k3deploy.adapters.bundle import script
from tests.lab import checkpoint
from tests.unit import real_headers
from tests.unit.weights_world import manifest_of

ROUNDS = 5
CPU_S = 3.0
WALL_S = 1.0
NODE_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Cost:
    """Of one process with all that it started."""

    wall_s: float
    cpu_s: float


def cost(argv: list[str], stdin: bytes = b"") -> Cost:
    """Run it to its end, which must be good."""
    before, started = os.times(), time.monotonic()
    subprocess.run(argv, input=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = os.times()
    cpu_s = after.children_user - before.children_user + after.children_system - before.children_system
    return Cost(time.monotonic() - started, cpu_s)


def at_real_size(folder: Path) -> list[Cost]:
    """The program on the node's Python, everything in the page cache."""
    made = real_headers.build(folder)
    args = {"hf_home": str(made.hf_home), "manifest": made.manifest, "level": "quick"}
    text = script("hashing", args)
    return [cost([NODE_PYTHON, "-I", "-"], text) for _ in range(ROUNDS)]


def on_the_lab(folder: Path) -> list[Cost]:
    """The command, on the miniature checkpoint as plain files."""
    commit = checkpoint.build(folder, "mini")
    (folder / "manifest.json").write_text(json.dumps(manifest_of(folder / checkpoint.REPO, commit)))
    words = ["--quick", "--local", str(folder / checkpoint.REPO), "--manifest", str(folder / "manifest.json")]
    return [cost([sys.executable, "-m", "k3deploy", "verify-shards", *words]) for _ in range(ROUNDS)]


def main() -> int:
    """Print the figures; 1 when a bound is broken."""
    with tempfile.TemporaryDirectory() as folder:
        real = at_real_size(Path(folder) / "real")
        lab = on_the_lab(Path(folder) / "lab")
    cpu_s = statistics.median(each.cpu_s for each in real)
    wall_s = statistics.median(each.wall_s for each in lab)
    spread = ", ".join(f"{each.cpu_s:.2f}" for each in real)
    print(f"quick look, 96 shards of 5,376 tensors: {cpu_s:.2f} s of CPU (bound {CPU_S:.0f} s; {spread})")
    spread = ", ".join(f"{each.wall_s:.2f}" for each in lab)
    print(
        f"quick look, the lab's 96 shards: {wall_s:.2f} s with the command's own start (bound {WALL_S:.0f} s; {spread})"
    )
    return 0 if cpu_s <= CPU_S and wall_s < WALL_S else 1


if __name__ == "__main__":
    sys.exit(main())
