"""Replace Docker's daemon.json so that at any moment the file is the old or the new one, and the old one is kept."""

import contextlib
import hashlib
import os
import shutil

from k3deploy.remote.protocol import Refusal
from k3deploy.remote.reading import tool

DAEMON_JSON = "/etc/docker/daemon.json"
# Beside daemon.json, for a run that found no such file.
ABSENT_SUFFIX = ".absent"


def read_config(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def config_digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def backup_path(path: str, run_id: str) -> str:
    return f"{path}.k3deploy-{run_id}"


def keep_config(path: str, backup: str) -> None:
    """Keep the file as it is now. A backup that is there already knows the state before us, so it stays."""
    if os.path.exists(backup) or os.path.exists(backup + ABSENT_SUFFIX):
        return
    if not os.path.exists(path):
        _write(backup + ABSENT_SUFFIX, b"", 0o644)
        return
    draft = f"{backup}.{os.getpid()}.tmp"
    shutil.copy2(path, draft)
    _sync(draft)
    os.rename(draft, backup)


def kept_config(backup: str) -> tuple[bool, bytes | None]:
    """Whether there is a backup, and the file it stands for (None: there was no file)."""
    data = read_config(backup)
    if data is not None:
        return True, data
    return os.path.exists(backup + ABSENT_SUFFIX), None


def put_config(path: str, data: bytes | None) -> None:
    """Make the file hold this, or be absent for None. A symbolic link stays one."""
    real = os.path.realpath(path)
    if data is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(real)
        return
    mode = os.stat(real).st_mode & 0o777 if os.path.exists(real) else 0o644
    _write(real, data, mode)


def forget_backup(backup: str) -> None:
    for path in (backup, backup + ABSENT_SUFFIX):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def validate_config(data: bytes, path: str) -> None:
    """Have the daemon itself read the candidate (Docker 23 and newer). Raises Refusal with its words."""
    draft = f"{os.path.realpath(path)}.{os.getpid()}.candidate"
    _write(draft, data, 0o600)
    try:
        done = tool(["dockerd", "--validate", "--config-file", draft])
    finally:
        os.unlink(draft)
    if done.exit_code != 0:
        raise Refusal(
            f"the Docker daemon does not accept the new {path}",
            why=(done.stderr or done.stdout).strip(),
            fix=f"correct {path} by hand so that `dockerd --validate` accepts it, then run the same command again",
            path=path,
        )


def _write(path: str, data: bytes, mode: int) -> None:
    draft = f"{path}.{os.getpid()}.tmp"
    with open(draft, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)
    _sync(os.path.dirname(path))


def _sync(path: str) -> None:
    """Rename is only lasting when its folder is on the disk, too."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
