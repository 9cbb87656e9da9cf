"""What a program of ours printed, told apart from whatever a login shell printed around it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

KINDS: Final = ("progress", "result", "error", "fault")
KEPT_NOISE_BYTES = 4000

Line = Mapping[str, Any]


class Reader:
    """Feed bytes, get the program's lines. All else (a message of the day, a warning) is noise, kept for errors."""

    def __init__(self) -> None:
        self._rest = b""
        self._noise = b""
        self.has_spoken = False

    @property
    def noise(self) -> str:
        return self._noise.decode("utf-8", "replace")

    @property
    def pending_bytes(self) -> int:
        """Bytes of a line whose end has not come yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[Line]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            found = parse(line)
            if found is None:
                self._noise = (self._noise + line + b"\n")[-KEPT_NOISE_BYTES:]
                continue
            self.has_spoken = True
            yield found

    def end(self) -> Iterator[Line]:
        """The last line, should it lack its newline."""
        rest, self._rest = self._rest, b""
        if rest:
            yield from self.feed(rest + b"\n")


def parse(line: bytes) -> Line | None:
    """One line of the protocol, or None. Noise without a newline may stand before it on the same line."""
    for kind in KINDS:
        at = line.find(b'{"' + kind.encode() + b'":')
        if at < 0:
            continue
        try:
            body = json.loads(line[at:])
        except ValueError:
            continue
        if isinstance(body, dict) and kind in body:
            return body
    return None
