"""Download wheels with pip, for another machine than this one, as the operator's pip is configured."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from k3deploy.domain.errors import PackageIndexError

# The oldest Python that a node may have. Wheels for it serve newer ones too: what is not pure is abi3, and PyYAML,
# which is neither, goes on without its compiled part on other versions.
_PYTHON = "3.10"
_ABIS = ("cp310", "abi3", "none")
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")  # glibc 2.28: Debian 10, Ubuntu 18.10, RHEL 8
_TIMEOUT_S = 300.0
_SOCKET_TIMEOUT_S = 15
_RETRIES = 2
_WORDS = 3


def target_options(architecture: str) -> tuple[str, ...]:
    """The options that make pip choose for a node instead of for this machine."""
    return (
        *("--python-version", _PYTHON, "--implementation", "cp"),
        *(word for abi in _ABIS for word in ("--abi", abi)),
        *(word for platform in _PLATFORMS for word in ("--platform", f"{platform}_{architecture}")),
    )


def download(lock: Path, folder: Path, architecture: str, environment: Mapping[str, str] | None = None) -> None:
    """Fetch every requirement of a lock by its hash, without dependencies or building. Raises PackageIndexError."""
    if importlib.util.find_spec("pip") is None:
        raise _failed(f"{sys.executable} has no pip", "install k3deploy anew: pip is one of its dependencies")
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
        *("--require-hashes", "--no-deps", "--only-binary=:all:", "--requirement", str(lock), "--dest", str(folder)),
        *target_options(architecture),
        *("--timeout", str(_SOCKET_TIMEOUT_S), "--retries", str(_RETRIES)),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=None if environment is None else {**os.environ, **environment},
        )
    except subprocess.TimeoutExpired as err:
        raise _failed(f"pip did not finish within {_TIMEOUT_S:.0f} s") from err
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise _failed(" / ".join(said[-_WORDS:]) or f"pip ended with exit code {done.returncode}")


def _failed(why: str, fix: str = "") -> PackageIndexError:
    return PackageIndexError(
        what="cannot download the node client's wheels",
        why=why,
        fix=fix
        or "check which index pip uses here (`pip config list`); or make the folder where there is one with "
        "`k3deploy wheelhouse DIR`, bring it here and add `--wheelhouse DIR`",
    )
