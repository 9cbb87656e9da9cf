"""Read and write the small files that people own: bounded reads, atomic writes, and errors that name the file."""

import os
import tempfile
from pathlib import Path

from k3deploy.domain.errors import ProfileError


def read(path: Path, *, limit_bytes: int) -> bytes:
    """At most `limit_bytes` + 1 bytes, so that the reader can tell that there is more. Raises ProfileError."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes + 1)
    except FileNotFoundError as err:
        raise ProfileError(
            what=f"there is no file {path}", fix="check the path", context={"folder": path.parent.absolute()}
        ) from err
    except IsADirectoryError as err:
        raise ProfileError(what=f"{path} is a folder", fix="name the file in it") from err
    except OSError as err:
        raise ProfileError(
            what=f"{path} cannot be read", why=err.strerror or str(err), fix="check the path and its permissions"
        ) from err


def write(path: Path, text: str) -> None:
    """Write to a temporary name beside it, then rename: a reader sees the old or the new file. Raises ProfileError."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as err:
        raise ProfileError(
            what=f"{path} cannot be written", why=err.strerror or str(err), fix="check the folder and its permissions"
        ) from err
