"""Write a file over SFTP: a new name with its final mode first, then the content, then an atomic rename."""

import contextlib
import io
import posixpath
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import paramiko

from k3deploy.adapters.deadline import Deadline
from k3deploy.adapters.ssh.process import closes_at

CHUNK_BYTES = 1 << 15  # the largest write that every SFTP server takes


class UploadFailed(Exception):
    """The server said no; `__cause__` is its OSError."""


class NoSftp(Exception):
    """The server has no SFTP subsystem."""


def upload(channel: paramiko.Channel, source: bytes | Path, path: str, mode: int, deadline: Deadline) -> None:
    """Raises UploadFailed, NoSftp, or what a broken connection raises (SSHException, EOFError, OSError)."""
    with closes_at(channel, deadline):
        try:
            channel.invoke_subsystem("sftp")
        except paramiko.SSHException as err:
            if deadline.is_over or not channel.get_transport().is_active():
                raise
            raise NoSftp from err
        sftp = paramiko.SFTPClient(channel)
        folder, name = posixpath.split(path)
        temporary = posixpath.join(folder, f".{name}.{secrets.token_hex(4)}.part")
        with _opened(source) as content:
            try:
                sent = _write(sftp, content, temporary, mode)
                _publish(sftp, temporary, path, sent)
            except OSError as err:
                if deadline.is_over or not channel.get_transport().is_active():
                    raise
                with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                    sftp.remove(temporary)
                raise UploadFailed from err


@contextlib.contextmanager
def _opened(source: bytes | Path) -> Iterator[BinaryIO]:
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as content:
        yield content


def _write(sftp: paramiko.SFTPClient, content: BinaryIO, temporary: str, mode: int) -> int:
    """Returns the number of bytes sent."""
    sent = 0
    with sftp.open(temporary, "wx") as file:
        file.chmod(mode)  # while it is empty: no content is ever visible to anybody else
        file.set_pipelined(True)
        while chunk := content.read(CHUNK_BYTES):
            file.write(chunk)
            sent += len(chunk)
    return sent


def _publish(sftp: paramiko.SFTPClient, temporary: str, path: str, sent_bytes: int) -> None:
    # Answers to pipelined writes are not looked at by paramiko, so a full disk shows here.
    found_bytes = sftp.stat(temporary).st_size
    if found_bytes != sent_bytes:
        raise OSError(f"{found_bytes} of {sent_bytes} bytes arrived")
    sftp.posix_rename(temporary, path)
