"""What decides where Docker and the weights are kept: daemon.json, the daemon's flags, folders and their owners."""

import base64
import os
import pwd
from typing import Any

from k3deploy.remote.docker_config import DAEMON_JSON, config_digest, read_config
from k3deploy.remote.docker_lock import wait_for_change
from k3deploy.remote.docker_unit import SERVICE_UNIT, daemon_argv, docker_units, flag_value, unit_files
from k3deploy.remote.journal import Journal
from k3deploy.remote.own_folder import login_user
from k3deploy.remote.reading import Reader

ROOT_FLAGS = ("--data-root", "--graph", "-g")


def answer(args: dict[str, Any]) -> dict[str, Any]:
    """`args`: mount, run_dir, hf_home, weights_mount (that of hf_home), owned (folders of the cache that the login
    user must be able to write).
    """
    wait_for_change()
    read = Reader()
    units = read.read("units", docker_units)
    argv = read.read("daemon_argv", lambda: daemon_argv(units or {}))
    path = flag_value(argv or [], ("--config-file",)) or DAEMON_JSON
    data = read_config(path)
    service = (units or {}).get(SERVICE_UNIT, {})
    return {
        "run_dir": _folder(args["run_dir"], args["mount"]),
        "hf_home": _folder(args["hf_home"], args["weights_mount"]),
        "not_ours": _not_ours(args["owned"]),
        "daemon_json": {
            "path": path,
            "text_base64": None if data is None else base64.b64encode(data).decode(),
            "sha256": config_digest(data),
        },
        "root_flag": flag_value(argv or [], ROOT_FLAGS),
        "has_unit": bool(service),
        "unit_files": unit_files(service),
        "journal": Journal(args["run_dir"]).entries(),
        "reasons": read.reasons,
    }


def _folder(path: str, mount: str) -> dict[str, Any]:
    try:
        found = os.stat(path)
    except OSError:
        return {"exists": False, "uid": None, "mode": None, "is_on_mount": False}
    return {
        "exists": True,
        "uid": found.st_uid,
        "mode": found.st_mode & 0o7777,
        "is_on_mount": os.path.exists(mount) and found.st_dev == os.stat(mount).st_dev,
    }


def _not_ours(paths: list[str]) -> list[dict[str, Any]]:
    """Existing folders of the cache that belong to somebody else than the login user."""
    login = login_user(None)
    found = []
    for path in paths:
        try:
            owner = os.stat(path).st_uid
        except OSError:
            continue
        if owner != login.pw_uid and login.pw_uid != 0:
            found.append({"path": path, "owner": _user(owner)})
    return found


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
