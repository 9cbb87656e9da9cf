"""The stand-in engine outside of its image: processes on loopback addresses, for tests of it and of what watches it."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab import checkpoint

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = {"tokenizer": 0, "init": 0, "load": 0.05, "pools": 0, "graphs": 0, "http": 0, "warmup": 0}
K3_OPTIONS = ("--trust-remote-code", "--reasoning-parser", "kimi_k3", "--tool-call-parser", "kimi_k3")
_RENDEZVOUS = " begin."
_PATIENCE_S = 60.0


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def lay_out_cache(hf_home: Path, hub_root: Path, repo: str = checkpoint.REPO) -> Path:
    """Put a built checkpoint where the Hugging Face client would; returns the snapshot's folder."""
    commit = checkpoint.built(hub_root, repo).commit
    folder = hf_home / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    shutil.copytree(hub_root / repo, snapshot)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit, encoding="utf-8")
    return snapshot


class EngineProcess:
    """One node of the engine: its process, its log, its address."""

    def __init__(self, options: list[str], host: str, hf_home: Path, folder: Path, **env: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.host = host
        self._options = options
        self.port = int(self.option("--port"))
        self._log = folder / "log"
        self._state = folder / "state.json"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.lab.engine.launch_server", *options],
                cwd=REPOSITORY,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONWARNINGS": "ignore",
                    "HF_HOME": str(hf_home),
                    "HF_HUB_OFFLINE": "1",
                    "LAB_ENGINE_STATE_DIR": str(folder),
                    "LAB_ENGINE_SECONDS": json.dumps(QUICK),
                    "SGLANG_HOST_IP": host,
                    "NCCL_SOCKET_IFNAME": "lo",
                    "GLOO_SOCKET_IFNAME": "lo",
                    **env,
                },
            )

    @property
    def pid(self) -> int:
        """The main process."""
        return self._process.pid

    def option(self, flag: str) -> str:
        """The value of an option; the last one counts."""
        return self._options[len(self._options) - self._options[::-1].index(flag)]

    def log(self) -> str:
        """All that it has printed."""
        return self._log.read_bytes().decode(errors="replace")

    def state(self) -> dict[str, Any]:
        """What it says of itself in its state file."""
        found: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
        return found

    def wait_for(self, text: str) -> None:
        """Until its log has this text; fails when it ends or the patience does."""
        deadline = time.monotonic() + _PATIENCE_S
        while text not in self.log():
            assert self._process.poll() is None, f"ended before {text!r}:\n{self.log()[-3000:]}"
            assert time.monotonic() < deadline, f"no {text!r} in\n{self.log()[-3000:]}"
            time.sleep(0.02)

    def wait_for_end(self) -> int:
        """Its exit code; negative for a signal."""
        return self._process.wait(_PATIENCE_S)

    def is_running(self) -> bool:
        """Whether the main process lives."""
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the main process."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Kill it, if it hasn't ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Status and text of one HTTP call."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_PATIENCE_S)
        try:
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def get(self, path: str) -> int:
        """The status of a GET."""
        return self.request("GET", path)[0]

    def chat(self, text: str, **more: Any) -> dict[str, Any]:
        """The response to one question."""
        body = {"messages": [{"role": "user", "content": text}], **more}
        status, answer = self.request("POST", "/v1/chat/completions", body)
        assert status == 200, answer
        parsed: dict[str, Any] = json.loads(answer)
        return parsed


@contextmanager
def engine_group(
    hf_home: Path,
    folder: Path,
    nodes: int = 2,
    options: Sequence[str] = (),
    *,
    node_ranks: Sequence[int] = (),
    head_options: Sequence[str] = (),
    **env: str,
) -> Iterator[list[EngineProcess]]:
    """A group of node ranks on 127.0.0.1, 127.0.0.2 ...

    `node_ranks` replaces 0, 1 ... where a test wants others, or another order: each waits in the rendezvous before the
    next one is started.
    """
    started: list[EngineProcess] = []
    rendezvous = f"127.0.0.1:{free_port()}"
    port = free_port()
    base = ["--model-path", checkpoint.REPO, *K3_OPTIONS, "--nnodes", str(nodes), "--dist-init-addr", rendezvous]
    if "--tp-size" not in options:
        base += ["--tp-size", "8"]
    try:
        for at, node_rank in enumerate(node_ranks or range(nodes)):
            host = f"127.0.0.{at + 1}"
            own = [*base, "--node-rank", str(node_rank), "--host", host, "--port", str(port), *options]
            own += head_options if node_rank == 0 else []
            started.append(EngineProcess(own, host, hf_home, folder / f"node-{at}", **env))
            if node_ranks:
                started[-1].wait_for(_RENDEZVOUS)
        yield started
    finally:
        for engine in started:
            engine.end()
