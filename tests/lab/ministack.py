"""The second, independent S3 server: ministack, in an environment of its own because it pins an older botocore.

`python -m tests.lab.ministack --port N` installs it once, from the hashes in requirements/ministack.txt, into the lab's
cache and serves S3 on a loopback address, nothing else and nowhere else.
"""

import argparse
import http.client
import ipaddress
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab import cache

_LOCK = Path(__file__).resolve().parents[2] / "requirements" / "ministack.txt"
_READY_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


class MinistackError(Exception):
    """It could not be installed, or it did not come up."""


def interpreter() -> Path:
    """The Python of its environment, made when it isn't in the cache yet."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    recipe = cache.recipe_hash(_LOCK.read_bytes(), version, sys.base_prefix)
    return cache.entry("ministack", recipe, _install) / "venv" / "bin" / "python"


def _install(draft: Path) -> None:
    python = draft / "venv" / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    for command in (
        [*uv, "venv", "--quiet", "--python", sys.executable, str(draft / "venv")],
        [*uv, "pip", "install", "--quiet", "--require-hashes", "--python", str(python), "-r", str(_LOCK)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MinistackError(f"`{' '.join(command)}` failed ({done.returncode}): {done.stderr[-2000:]}")


def environment(host: str, port: int, folder: Path) -> dict[str, str]:
    """S3 alone, in memory, away from the machine's own Docker and home."""
    if not ipaddress.ip_address(host).is_loopback:
        raise MinistackError(f"{host} is not a loopback address")
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "BIND_HOST": host,
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": host,
        "SERVICES": "s3",
        "S3_PERSIST": "0",
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "DOCKER_HOST": f"unix://{folder}/no-docker.sock",
        "LOG_LEVEL": "WARNING",
    }


@contextmanager
def running(host: str = "127.0.0.1") -> Iterator[str]:
    """Serve on a free port; yields the URL."""
    python = interpreter()
    port = _free_port(host)
    with tempfile.TemporaryDirectory(prefix="ministack-") as name:
        folder = Path(name)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(python), "-m", "ministack"],
                env=environment(host, port, folder),
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait(host, port, process, folder / "log")
            yield f"http://{host}:{port}"
        finally:
            process.terminate()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(host: str, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            connection = http.client.HTTPConnection(host, port, timeout=1)
            connection.request("GET", "/_ministack/health")
            connection.getresponse().read()
        except (http.client.HTTPException, OSError):
            time.sleep(0.05)
        else:
            connection.close()
            return
    raise MinistackError(f"ministack did not come up on {host}:{port}: {log.read_text(errors='replace')[-2000:]}")


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Become the server."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.ministack", description="A second S3 server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    python = interpreter()
    folder = Path(tempfile.mkdtemp(prefix="ministack-"))
    os.execve(python, [str(python), "-m", "ministack"], environment(args.host, args.port, folder))  # noqa: S606  no shell is what we want


if __name__ == "__main__":
    main()
