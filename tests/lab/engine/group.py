"""The process group: a real TCP rendezvous of all node ranks, kept open as the channel of their collectives.

Node rank 0 listens on --dist-init-addr, the others connect to it and say who they are. Nothing goes on until each rank
is there exactly once, and nothing ends the wait but --dist-timeout. Afterwards the same connections carry barriers,
one message per served request, and the shutdown broadcast; a connection that closes is a lost peer.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .launch import Launch
from .nics import is_local

Message = dict[str, Any]


class DistError(Exception):
    """The group did not form, or a collective failed; the text is the one torch gives."""


class PeerLost(Exception):
    """A node of the group is gone."""


class Group:
    """This node's place in the group."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._is_head = launch.node_rank == 0
        self._changed = threading.Condition()
        self._links: dict[int, _Link] = {}
        self._is_broken = False
        self._has_no_head = False
        self._joins = 0
        self._is_formed = launch.nnodes == 1
        self._arrived: dict[str, set[int]] = {}
        self._passed: set[str] = set()
        self._acks: dict[int, set[int]] = {}
        self._steps = 0
        self._lost: str | None = None
        self._is_shutting_down = False

    def form(self) -> None:
        """Wait until every node rank is there once; raise DistError after the timeout."""
        if self._launch.nnodes == 1:
            return
        deadline = time.monotonic() + self._launch.dist_timeout_s
        host, _, port = str(self._launch.args.dist_init_addr or "127.0.0.1:0").rpartition(":")
        if self._is_head and is_local(host) and port != "0":
            self._listen(host, int(port))
        else:
            self._connect(host, int(port), deadline)
        self._wait(lambda: self._is_formed or self._has_no_head, deadline)
        if not self._is_formed:
            raise DistError(self._why_not_formed())

    def _why_not_formed(self) -> str:
        timeout_s = self._launch.dist_timeout_s
        joined = 1 + self._joins
        if self._has_no_head:
            return (
                "torch.distributed.DistNetworkError: failed to recv, got 0 bytes. Connection was likely closed. "
                "Did the remote server shutdown or crash?"
            )
        if self._is_head and joined < self._launch.nnodes:
            each = self._launch.world_size // self._launch.nnodes
            return (
                f"torch.distributed.DistStoreError: Timed out after {timeout_s + 1:.0f} seconds waiting for clients. "
                f"{joined * each}/{self._launch.world_size} clients joined."
            )
        return (
            f"torch.distributed.DistStoreError: wait timeout after {timeout_s * 1000:.0f}ms, "
            "keys: /default_pg/0//cuda//0"
        )

    def _listen(self, host: str, port: int) -> None:
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((host, port))
        except OSError as error:
            raise DistError(
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
                f"address. port: {port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
            ) from error
        server.listen(64)
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            link = _Link(connection, self._on_message, self._on_close)
            link.start()

    def _connect(self, host: str, port: int, deadline: float) -> None:
        while True:
            with suppress(OSError):
                connection = socket.create_connection((host, port), timeout=5, source_address=_source())
                connection.settimeout(None)
                break
            if time.monotonic() > deadline:
                raise DistError(
                    "torch.distributed.DistNetworkError: The client socket has timed out after "
                    f"{self._launch.dist_timeout_s * 1000:.0f}ms while trying to connect to ({host}, {port})."
                )
            time.sleep(0.1)
        link = _Link(connection, self._on_message, self._on_close)
        link.peer_rank = 0
        self._links[0] = link
        link.start()
        link.send(
            {
                "type": "join",
                "node_rank": self._launch.node_rank,
                "world": self._launch.world_size,
                "nnodes": self._launch.nnodes,
            }
        )

    def _on_message(self, link: "_Link", message: Message) -> None:
        with self._changed:
            match message["type"]:
                case "join":
                    self._join(link, message)
                case "formed":
                    self._is_formed = True
                case "arrive":
                    self._arrive(message["at"], message["node_rank"])
                case "go":
                    self._passed.add(message["at"])
                case "step":
                    link.send({"type": "ack", "step": message["step"]})
                case "ack":
                    self._acks.setdefault(message["step"], set()).add(link.peer_rank)
                case "shutdown":
                    self._is_shutting_down = True
            self._changed.notify_all()

    def _join(self, link: "_Link", message: Message) -> None:
        rank = int(message["node_rank"])
        same_shape = message["nnodes"] == self._launch.nnodes and message["world"] == self._launch.world_size
        link.peer_rank = rank
        self._joins += 1
        if self._is_formed:
            link.close()  # a stranger after the fact
            return
        if rank in self._links or rank == 0 or not same_shape:
            self._is_broken = True  # two of one rank, or two sizes: the collectives never agree
            return
        self._links[rank] = link
        if len(self._links) == self._launch.nnodes - 1 and not self._is_broken:
            self._is_formed = True
            self._broadcast({"type": "formed"})

    def _arrive(self, at: str, node_rank: int) -> None:
        self._arrived.setdefault(at, set()).add(node_rank)
        if len(self._arrived[at]) == self._launch.nnodes:
            self._passed.add(at)
            self._broadcast({"type": "go", "at": at})

    def _on_close(self, link: "_Link") -> None:
        with self._changed:
            if not self._is_formed:
                self._is_broken = True  # whoever joined and left has been counted, and will be missed
                self._has_no_head = not self._is_head
            elif self._links.get(link.peer_rank) is link and not self._is_shutting_down:
                self._lost = link.address
            self._changed.notify_all()

    def _broadcast(self, message: Message) -> None:
        for link in self._links.values():
            link.send(message)

    def _wait(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        with self._changed:
            while not condition():
                if self._lost is not None:
                    raise PeerLost(self._lost)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def barrier(self, at: str, timeout_s: float | None) -> bool:
        """Wait for all nodes; False after the timeout."""
        if self._launch.nnodes == 1:
            return True
        with self._changed:
            if self._is_head:
                self._arrive(at, 0)
            else:
                self._links[0].send({"type": "arrive", "at": at, "node_rank": self._launch.node_rank})
            self._changed.notify_all()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return self._wait(lambda: at in self._passed, deadline)

    def step(self, timeout_s: float) -> bool:
        """One forward step: every node answers, or False after the timeout."""
        with self._changed:
            self._steps += 1
            step = self._steps
            self._broadcast({"type": "step", "step": step})
        done = self._wait(
            lambda: len(self._acks.get(step, ())) == self._launch.nnodes - 1, time.monotonic() + timeout_s
        )
        with self._changed:
            self._acks.pop(step, None)
        return done

    def wait_for_shutdown(self) -> None:
        """A follower's life after start-up: until rank 0 says so, or is gone."""
        self._wait(lambda: self._is_shutting_down, None)

    def wait_for_loss(self) -> None:
        """Rank 0's watch: raises PeerLost when a node goes, returns when the group shuts down."""
        self._wait(lambda: self._is_shutting_down, None)

    def shut_down(self) -> None:
        """Rank 0 ends the group."""
        with self._changed:
            self._is_shutting_down = True
            self._broadcast({"type": "shutdown"})
            self._changed.notify_all()


def _source() -> tuple[str, int] | None:
    """Peers see the address that this node announces."""
    announced = os.environ.get("SGLANG_HOST_IP") or os.environ.get("HOST_IP")
    return (announced, 0) if announced else None


class _Link:
    """One connection with JSON lines in both directions."""

    def __init__(
        self,
        connection: socket.socket,
        on_message: Callable[["_Link", Message], None],
        on_close: Callable[["_Link"], None],
    ) -> None:
        self._connection = connection
        self._on_message = on_message
        self._on_close = on_close
        self._sending = threading.Lock()
        self.peer_rank = -1
        host, port = connection.getpeername()[:2]
        self.address = f"[{host}]:{port}"

    def start(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Message) -> None:
        """Errors are left to the reading side, which sees the same connection close."""
        with self._sending, suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        with suppress(OSError, ValueError), self._connection.makefile("rb") as lines:
            for line in lines:
                self._on_message(self, json.loads(line))
        self._on_close(self)
