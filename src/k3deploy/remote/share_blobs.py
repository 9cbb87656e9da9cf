"""The blobs of one manifest that may go out to peers: those whose very bytes were hashed on this node, and right."""

import os
import re
import threading
from typing import Any

from k3deploy.remote.hub_cache import Found, Repository, Wanted, wanted_files
from k3deploy.remote.share_http import Answer, Piece, error_answer
from k3deploy.remote.stamps import Stamps

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")


class Blobs:
    """`slots`: transfers at a time. More would only make each one slower, and what is rare would spread later."""

    def __init__(self, hf_home: str, manifest: dict[str, Any], slots: int) -> None:
        self._repository = Repository(hf_home, manifest["repo"], manifest["commit"])
        self._files = wanted_files(manifest)
        self._by_digest = {file.digest: file for file in self._files if file.is_sha256}
        self._free = threading.BoundedSemaphore(slots)
        self._lock = threading.Lock()
        self._stamps_version = _version(self._repository.stamps)
        self._stamps = Stamps(self._repository)
        self.served_bytes = 0

    def held(self) -> list[int]:
        """Indexes in the manifest of the files that a peer can have from here."""
        stamps = self._current_stamps()
        return [
            index
            for index, file in enumerate(self._files)
            if file.is_sha256
            and isinstance(found := self._repository.look_at(file), Found)
            and stamps.digest_of(file, found) == file.digest
        ]

    def answer(self, digest: str, wanted_range: str | None) -> Answer:
        """The blob of that sha256, or the part of it that a Range header asks for."""
        file = self._by_digest.get(digest)
        blob = self._open(file) if file else None
        if file is None or blob is None:
            return error_answer(404, "no blob of this name is proved here")
        span = _span(wanted_range, file.size_bytes)
        if span is None:
            os.close(blob)
            return error_answer(416, "no such range", {"Content-Range": f"bytes */{file.size_bytes}"})
        if not self._free.acquire(blocking=False):
            os.close(blob)
            return error_answer(503, "as many transfers as there may be are under way", {"Retry-After": "0"})
        first, count = span
        headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"}
        if wanted_range is not None:
            headers["Content-Range"] = f"bytes {first}-{first + count - 1}/{file.size_bytes}"
        status = 200 if wanted_range is None else 206
        return Answer(status, headers=headers, piece=Piece(blob, first, count), done=self._done)

    def _open(self, file: Wanted) -> int | None:
        """A descriptor of the file, when the bytes behind the open descriptor are those that were hashed."""
        found = self._repository.look_at(file)
        if not isinstance(found, Found):
            return None
        try:
            blob = os.open(found.real, os.O_RDONLY)
        except OSError:  # it was moved aside this very moment, or is not ours to read
            return None
        opened = Found(found.real, os.fstat(blob))
        if self._current_stamps().digest_of(file, opened) == file.digest:
            return blob
        os.close(blob)
        return None

    def _current_stamps(self) -> Stamps:
        """What is proved now: other processes hash and write it down."""
        with self._lock:
            version = _version(self._repository.stamps)
            if version != self._stamps_version:
                self._stamps_version = version
                self._stamps = Stamps(self._repository)
            return self._stamps

    def _done(self, sent_bytes: int) -> None:
        self._free.release()
        with self._lock:
            self.served_bytes += sent_bytes


def _version(path: str) -> tuple[int, int] | None:
    """Changes whenever the file is replaced; None while there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _span(wanted: str | None, size_bytes: int) -> tuple[int, int] | None:
    """(first byte, count) of one range; all without a header, None for what cannot be satisfied."""
    if wanted is None:
        return 0, size_bytes
    match = _RANGE.fullmatch(wanted)
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        count = min(int(suffix), size_bytes)
        return (size_bytes - count, count) if count else None
    start, end = int(first), min(int(last or size_bytes - 1), size_bytes - 1)
    return (start, end - start + 1) if start <= end else None
