"""Take a container's log apart: Docker's frames, its timestamps, lines ended by a newline or a carriage return."""

import calendar
import re
import time
from typing import NamedTuple

from k3deploy.remote.redact import redact

_HEADER_BYTES = 8
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ")
_END = re.compile(rb"[\r\n]+")
# A line without an end is given out at this size, so that no memory is promised to a program that prints none.
_LONGEST_BYTES = 65536


class LogLine(NamedTuple):
    at: float  # epoch seconds: when the container printed it
    text: str


class LogDecoder:
    """Feed it the bytes of `GET /containers/ID/logs?timestamps=1`; it gives the lines that are complete.

    Without a terminal (`is_framed`) each piece has a header: stream (1 byte), three zeros, size (4 bytes, big endian).
    A progress bar redraws one line with carriage returns: each state of it is a line here. Docker hands such a bar
    out in pieces of 16 KiB or at its newline, so it may come late, never wrongly.
    """

    def __init__(self, *, is_framed: bool) -> None:
        self._is_framed = is_framed
        self._waiting = b""
        self._partial: dict[int, tuple[float, bytes]] = {}

    def feed(self, data: bytes) -> list[LogLine]:
        self._waiting += data
        lines: list[LogLine] = []
        for stream, message in self._messages():
            lines += self._take(stream, message)
        return lines

    def end(self) -> list[LogLine]:
        """What was left without an end."""
        lines = [LogLine(at, _text(rest)) for at, rest in self._partial.values()]
        self._partial.clear()
        return [line for line in lines if line.text]

    def _messages(self) -> list[tuple[int, bytes]]:
        if not self._is_framed:
            head, newline, rest = self._waiting.rpartition(b"\n")
            self._waiting = rest
            return [(1, line + b"\n") for line in head.split(b"\n")] if newline else []
        messages = []
        while len(self._waiting) >= _HEADER_BYTES:
            size = int.from_bytes(self._waiting[4:_HEADER_BYTES], "big")
            if len(self._waiting) < _HEADER_BYTES + size:
                break
            messages.append((self._waiting[0], self._waiting[_HEADER_BYTES : _HEADER_BYTES + size]))
            self._waiting = self._waiting[_HEADER_BYTES + size :]
        return messages

    def _take(self, stream: int, message: bytes) -> list[LogLine]:
        began, before = self._partial.pop(stream, (0.0, b""))
        stamp = _STAMP.match(message)
        if stamp:
            at = parse_time(stamp.group(1).decode())
            message = message[stamp.end() :]
        else:
            at = began
        *complete, rest = _END.split(before + message)
        lines = [line for piece in complete if (line := LogLine(at, _text(piece))).text]
        if len(rest) > _LONGEST_BYTES:
            lines.append(LogLine(at, _text(rest)))
            rest = b""
        if rest:
            self._partial[stream] = (at, rest)
        return lines


def parse_time(stamp: str) -> float:
    """Epoch seconds of Docker's RFC 3339 time, which has nanoseconds; 0 for "never" (year 1)."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|([+-])(\d\d):(\d\d))", stamp)
    if match is None:
        raise ValueError(f"not a time as Docker writes it: {stamp!r}")
    if stamp.startswith("0001-"):
        return 0.0
    seconds = calendar.timegm(time.strptime(match.group(1), "%Y-%m-%dT%H:%M:%S")) + float(match.group(2) or 0)
    if match.group(4):
        offset_s = (int(match.group(5)) * 60 + int(match.group(6))) * 60
        seconds += -offset_s if match.group(4) == "+" else offset_s
    return seconds


def _text(piece: bytes) -> str:
    return redact(piece.decode("utf-8", "replace").rstrip())
