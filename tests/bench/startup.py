"""What starting k3deploy costs, as CPU time against bare Python and against importing typer, in the same run.

Medians of alternated runs with the environment's own interpreter. Exits 1 when a bound is broken:
`--version` at most 3 x `python -c pass`, `--help` at most 1.4 x `python -c "import typer"`.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

BIN = Path(__file__).resolve().parents[2] / ".venv" / "bin"
PYTHON = str(BIN / "python")
ROUNDS = 15

COMMANDS = {
    "python -c pass": [PYTHON, "-c", "pass"],
    "k3deploy --version": [PYTHON, "-m", "k3deploy", "--version"],
    "python -c 'import typer'": [PYTHON, "-c", "import typer"],
    "k3deploy --help": [PYTHON, "-m", "k3deploy", "--help"],
}
BOUNDS = [("k3deploy --version", "python -c pass", 3.0), ("k3deploy --help", "python -c 'import typer'", 1.4)]


def cpu_s(argv: list[str]) -> float:
    """User and system time of one run of a command, in seconds."""
    # As an installed program runs: with its bytecode, which the first run below leaves.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    seen: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for argv in COMMANDS.values():
        cpu_s(argv)  # bytecode and page cache are warm for all of them
    for _ in range(ROUNDS):
        for name, argv in COMMANDS.items():
            seen[name].append(cpu_s(argv))
    median = {name: statistics.median(times) for name, times in seen.items()}
    for name, value in median.items():
        print(f"{name:<28} {value * 1000:7.1f} ms")
    broken = 0
    for name, rival, bound in BOUNDS:
        ratio = median[name] / median[rival]
        verdict = "ok" if ratio <= bound else "TOO SLOW"
        broken += ratio > bound
        print(f"{name} / {rival}: {ratio:.2f} (at most {bound}) {verdict}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
