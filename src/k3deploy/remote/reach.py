"""Prove that this node and its peers reach each other: listen on the given ports, dial the peers' same ports, report.

Every node of a replica runs this at about the same time, one program each. A listener speaks first, so a port that is
somebody else's (an engine's) is sent not one byte. The program ends when all is dialled and all peers are served, or
at its deadline; nothing stays behind.
"""

import contextlib
import errno
import json
import socket
import threading
import time
from typing import Any

from k3deploy.remote.protocol import Say

_LINE_MAX = 4096
_SPEAK_TIMEOUT_S = 5.0
_RETRY_S = 0.1
_TIMEOUTS_MAX = 2  # attempts that end without any answer: a filter does not change its mind
_ACCEPT_S = 0.2
_QUIET_S = 2.0


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: name, address, token (what this node says of itself), ports, peers [{name, address, token}],
    connect_s (the wait for one connection), grace_s (how long peers may take to come up).

    Returns {"busy": [own ports that somebody else holds], "dials": [{to, port, found, detail}]}; `found` is answered,
    open (somebody else's port), refused (nobody listened in time), rejected (refused although that node listens: by a
    firewall), timeout, unreachable or stranger (another machine answered).
    """
    node = _Node(args)
    node.listen()
    dials = [
        threading.Thread(target=node.dial, args=(peer, port), daemon=True)
        for peer in args["peers"]
        for port in args["ports"]
    ]
    for thread in dials:
        thread.start()
    for thread in dials:
        thread.join()
    node.wait_until_served()
    node.close()
    return {"busy": sorted(node.busy), "dials": sorted(node.found, key=lambda row: (row["to"], row["port"]))}


class _Node:
    def __init__(self, args: dict[str, Any]) -> None:
        self.name: str = args["name"]
        self.address: str = args["address"]
        self.token: str = args["token"]
        self.ports: list[int] = args["ports"]
        self.peers: list[dict[str, Any]] = args["peers"]
        self.connect_s: float = args["connect_s"]
        self.deadline = time.monotonic() + args["grace_s"]
        self.busy: set[int] = set()
        self.found: list[dict[str, Any]] = []
        self._family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._sockets: list[socket.socket] = []
        self._served: set[tuple[str, int]] = set()
        self._busy_there: dict[str, set[int]] = {}  # of every peer that has answered
        self._last_served = time.monotonic()
        self._all_served = threading.Event()
        self._is_closed = threading.Event()
        self._lock = threading.Lock()

    def listen(self) -> None:
        """Bind all ports before the first dial, so that every peer is told which ones are not ours."""
        bound = []
        for port in self.ports:
            listener = socket.socket(self._family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((self.address, port))
                listener.listen(64)
            except OSError as error:
                listener.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                self.busy.add(port)
                continue
            listener.settimeout(_ACCEPT_S)
            self._sockets.append(listener)
            bound.append((listener, port))
        self._note_served()
        for listener, port in bound:
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def wait_until_served(self) -> None:
        """Peers may need us longer than we need them; one that is up and stays away is blocked, and not waited for."""
        while not self._all_served.wait(_ACCEPT_S) and time.monotonic() < self.deadline:
            is_quiet = time.monotonic() - self._last_served > _TIMEOUTS_MAX * self.connect_s + _QUIET_S
            names = {name for name, _ in self._served} | set(self._busy_there)
            if is_quiet and names >= {peer["name"] for peer in self.peers}:
                return

    def close(self) -> None:
        self._is_closed.set()
        for listener in self._sockets:
            listener.close()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while not self._is_closed.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection, port), daemon=True).start()

    def _serve(self, connection: socket.socket, port: int) -> None:
        with contextlib.suppress(OSError, ValueError), connection:
            connection.settimeout(_SPEAK_TIMEOUT_S)
            connection.sendall(_line({"token": self.token, "busy": sorted(self.busy)}))
            name = json.loads(_read_line(connection))["name"]
            with self._lock:
                self._served.add((name, port))
                self._last_served = time.monotonic()
            self._note_served()

    def _note_served(self) -> None:
        own = [port for port in self.ports if port not in self.busy]
        if all((peer["name"], port) in self._served for peer in self.peers for port in own):
            self._all_served.set()

    def dial(self, peer: dict[str, Any], port: int) -> None:
        timeouts = 0
        while True:
            was_up = peer["name"] in self._busy_there
            found, detail = self._try(peer, port)
            timeouts += found == "timeout"
            is_busy = port in self._busy_there.get(peer["name"], ())
            if is_busy and found in ("refused", "stranger", "timeout-after-connect"):
                # Whatever holds the port answered, or its kernel did: the way there is open.
                found = "open"
            elif found == "refused" and was_up:
                found, detail = "rejected", "connection refused, although that node listens on the port"
            is_final = found in ("answered", "open", "rejected", "unreachable") or timeouts >= _TIMEOUTS_MAX
            if is_final or time.monotonic() + _RETRY_S > self.deadline:
                break
            time.sleep(_RETRY_S)
        if found == "timeout-after-connect":
            found = "stranger"
        with self._lock:
            self.found.append({"to": peer["name"], "port": port, "found": found, "detail": detail})

    def _try(self, peer: dict[str, Any], port: int) -> tuple[str, str]:
        with socket.socket(self._family, socket.SOCK_STREAM) as connection:
            connection.settimeout(self.connect_s)
            try:
                # From our private address: that is the way the engine's own connections will take.
                connection.bind((self.address, 0))
                connection.connect((peer["address"], port))
            except TimeoutError:
                return "timeout", f"no answer within {self.connect_s:g} s"
            except ConnectionRefusedError:
                return "refused", "connection refused"
            except OSError as error:
                return "unreachable", error.strerror or str(error)
            try:
                word = json.loads(_read_line(connection))
                if word["token"] != peer["token"]:
                    return "stranger", "another program, or another machine, answered"
                self._busy_there[peer["name"]] = set(word["busy"])
                connection.sendall(_line({"name": self.name}))
            except TimeoutError:
                return "timeout-after-connect", "connected, but nothing was said"
            except (OSError, ValueError, KeyError, TypeError):
                return "stranger", "another program, or another machine, answered"
            return "answered", ""


def _line(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < _LINE_MAX:
        part = connection.recv(_LINE_MAX)
        if not part:
            break
        data += part
    return data
