"""Unpack the Hub client's wheels into a folder for `sys.path`: every hash checked, nothing outside, all or nothing."""

import hashlib
import io
import os
import shutil
import zipfile
from typing import Any

from k3deploy.remote.client_stamp import write_stamp
from k3deploy.remote.protocol import Refusal, Say

_MOST_BYTES = 512 << 20


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: pack (a zip of wheels), wheels {name: sha256}, folder, lock (its id). The pack is removed.

    Returns {"files"}. Raises Refusal for a damaged pack, or one that would write outside of the folder.
    """
    folder = args["folder"]
    draft = f"{folder}.{os.getpid()}.part"
    shutil.rmtree(draft, ignore_errors=True)
    os.mkdir(draft, 0o755)
    try:
        with zipfile.ZipFile(args["pack"]) as pack:
            if sorted(pack.namelist()) != sorted(args["wheels"]):
                raise _damaged(args["pack"], "it holds other wheels than were sent")
            for name, sha256 in args["wheels"].items():
                data = pack.read(name)
                if hashlib.sha256(data).hexdigest() != sha256:
                    raise _damaged(args["pack"], f"{name} has another hash")
                _unpack(data, name, draft)
        count = write_stamp(draft, args["lock"])
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(draft, folder)
    except zipfile.BadZipFile as error:
        raise _damaged(args["pack"], str(error)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if os.path.exists(args["pack"]):
            os.unlink(args["pack"])
    return {"files": count}


def _unpack(data: bytes, name: str, folder: str) -> None:
    """A wheel is a zip: its members go where sys.path finds them. Names that would leave the folder are refused."""
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        members = wheel.infolist()
        if sum(member.file_size for member in members) > _MOST_BYTES:
            raise _damaged(name, "it unpacks to more than a client can need")
        for member in members:
            parts = member.filename.rstrip("/").split("/")
            if member.filename.startswith("/") or "\\" in member.filename or any(p in ("", ".", "..") for p in parts):
                raise _damaged(name, f"{member.filename!r} would be written outside of the folder")
            path = os.path.join(folder, *parts)
            if member.is_dir():
                os.makedirs(path, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # Never a link, whatever the archive says: the bytes are written as a plain file.
            with wheel.open(member) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target)


def _damaged(path: str, why: str) -> Refusal:
    return Refusal(
        "the Hub client's wheels cannot be unpacked",
        why=f"{path}: {why}",
        fix="run the same command again: it sends them anew",
        path=path,
    )
