"""How fast a checkpoint on this machine's disk is proved, cold, against what the disk and the cores can give.

Everything lies in the lab's cache folder: 16 files of 400 MB, brought there by the real client from a lab's Hub on a
loopback address, which `hf cache verify` asks for the digests.
"""

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab import assets, checkpoint, folders, hub
from tests.lab.hub_files import Repositories

VARIANT = "bench16"
ROUNDS = 5
BIN = Path(sys.executable).parent
_BLOCK = bytes(4 << 20)
_CORE_S = 1.0
_MANIFEST = "bench-manifest.json"


@dataclass(frozen=True)
class Speeds:
    """Medians in bytes a second, of alternated cold rounds; `cores` is the hash rate of all cores from memory.

    `fio` counts its reads, so `ours` counts the proof; `hf` and `ours_in_all` are whole commands.
    """

    fio: float
    ours: float
    ours_in_all: float
    hf: float
    cores: float

    @property
    def limit(self) -> float:
        return min(self.fio, self.cores)


def measure() -> Speeds:
    """The files' pages are dropped before each round; programs stay warm, as nothing is meant to be said of those."""
    _install_fio()
    with _cache() as (home, environment):
        shards = sorted(path.resolve() for path in home.glob("hub/models--*/snapshots/*/*.safetensors"))
        size_bytes = sum(path.stat().st_size for path in shards)
        seen: dict[str, list[float]] = {name: [] for name in ("cores", "fio", "ours", "ours_in_all", "hf")}
        for _ in range(ROUNDS):
            seen["cores"].append(_cores())
            _forget(shards)
            seen["fio"].append(size_bytes / _fio(shards))
            _forget(shards)
            in_all_s, said = _run(_ours(home), environment)
            seen["ours_in_all"].append(size_bytes / in_all_s)
            seen["ours"].append(size_bytes / json.loads(said)["nodes"][0]["repositories"][0]["seconds"])
            _forget(shards)
            seen["hf"].append(size_bytes / _run(_hf(home), environment)[0])
    for name, rates in seen.items():
        print(f"{name:<12} {'  '.join(f'{rate / 1e9:.2f}' for rate in rates)} GB/s   load {os.getloadavg()[0]:.1f}")
    return Speeds(**{name: statistics.median(rates) for name, rates in seen.items()})


def _ours(home: Path) -> list[str]:
    words = (
        "verify-shards",
        "--local",
        str(home),
        "--manifest",
        str(home / _MANIFEST),
        "--no-cache",
        "--output",
        "json",
    )
    return [str(BIN / "k3deploy"), *words]


def _hf(home: Path) -> list[str]:
    commit = checkpoint.expected(VARIANT).commit
    return [
        *(str(BIN / "hf"), "cache", "verify", checkpoint.REPO, "--revision", commit, "--cache-dir", str(home / "hub")),
        *("--fail-on-missing-files", "--fail-on-extra-files"),
    ]


@contextmanager
def _cache() -> Iterator[tuple[Path, dict[str, str]]]:
    """A Hugging Face home with the checkpoint in it, and the environment in which the client asks the lab's Hub."""
    root = assets.hub_root(VARIANT)
    server, stop = hub.start(root)
    home = folders.home() / f"bench-hash-{os.getpid()}"
    try:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_SHARED_BLOBS": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        }
        commit = checkpoint.expected(VARIANT).commit
        words = ["download", checkpoint.REPO, "--revision", commit, "--quiet"]
        _run([str(BIN / "hf"), *words], environment)
        listed = [
            {"path": path, "size": file.size, "sha256": file.sha256, "blob_id": file.blob_id}
            for path, file in Repositories(root).files(checkpoint.REPO).items()
        ]
        (home / _MANIFEST).write_text(json.dumps({"repo": checkpoint.REPO, "commit": commit, "files": listed}))
        yield home, environment
    finally:
        stop()
        shutil.rmtree(home, ignore_errors=True)


def _forget(files: Sequence[Path]) -> None:
    """Let the page cache drop them, written or not."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _run(argv: Sequence[str], environment: dict[str, str]) -> tuple[float, str]:
    """How long a command took, and what it said on stdout. Raises SystemExit when it fails."""
    began = time.monotonic()
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{argv} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.monotonic() - began, done.stdout


def _fio(files: Sequence[Path]) -> float:
    """Read every file once, past the page cache, many requests at a time: what this disk gives at best."""
    options = ("--rw=read", "--bs=4M", "--direct=1", "--ioengine=libaio", "--iodepth=16", "--readonly")
    names = ":".join(str(path) for path in files)
    argv = ["fio", "--name=read", f"--filename={names}", "--file_service_type=sequential", *options]
    done = subprocess.run([*argv, "--output-format=json"], capture_output=True, text=True, check=True)
    (job,) = json.loads(done.stdout)["jobs"]
    return float(job["read"]["runtime"]) / 1000


def _cores() -> float:
    """Bytes a second that all cores hash at once, from memory."""
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(count) as pool:
        return sum(pool.map(_one_core, range(count)))


def _one_core(_: int) -> float:
    digest, done, began = hashlib.sha256(), 0, time.monotonic()
    while time.monotonic() - began < _CORE_S:
        digest.update(_BLOCK)
        done += len(_BLOCK)
    return done / (time.monotonic() - began)


def _install_fio() -> None:
    if shutil.which("fio") is None:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        argv = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "fio"]
        subprocess.run(argv, check=True, env=environment, stdout=subprocess.DEVNULL)
