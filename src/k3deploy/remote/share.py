"""Give this node's proved blobs to the other nodes of the run, and answer as their tracker when they ask this node.

It listens on the private address alone, lets in the run's nodes alone, and they must know the run's token.
"""

import errno
import hmac
import re
import socket
import time
from typing import Any

from k3deploy.remote.hub_cache import manifest_digest, wanted_files
from k3deploy.remote.job_folder import JobFolder
from k3deploy.remote.leases_file import NAME as LEASES
from k3deploy.remote.link_speed import stream_count
from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.protocol import Refusal, Say
from k3deploy.remote.share_blobs import Blobs
from k3deploy.remote.share_http import Answer, HttpServer, error_answer, json_answer
from k3deploy.remote.share_peers import Peers
from k3deploy.remote.share_protocol import BLOBS, END, REPORT, STATE, Me, method_of
from k3deploy.remote.share_request import Head
from k3deploy.remote.share_tracker import Tracker

_TICK_S = 1.0
# When all nodes have all files, a last question may still be on its way.
_QUIET_S = 5.0
_BLOB = re.compile(BLOBS + "[0-9a-f]{64}")


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: run, node, host, ports (the first free one is taken), peers_file, hf_home, manifest, fetch_folder (of
    the job that fetches here), linger_s, slots (None: as many as fill the link); secrets: swarm_token.

    Ends when every node has every file, or when nobody has asked for `linger_s` and this node's fetch is over.
    Returns {"served_bytes", "seconds", "why"}. Raises Refusal when it cannot listen.
    """
    started = time.monotonic()
    share = Share(args)
    server = HttpServer(listen(args["host"], args["ports"]), share)
    try:
        while (why := share.reason_to_end(time.monotonic())) is None:
            share.tend()
            say({"message": "sharing weights", "served_bytes": share.served_bytes})
            time.sleep(_TICK_S)
    finally:
        server.close()
    return {"served_bytes": share.served_bytes, "seconds": time.monotonic() - started, "why": why}


class Share:
    """What the server serves; `args` are those of `main`. `asked_at`: when somebody last wanted a blob or reported."""

    def __init__(self, args: dict[str, Any]) -> None:
        self._node: str = args["node"]
        self._host: str = args["host"]
        self._linger_s: float = args["linger_s"]
        me = Me(self._host, args["secrets"]["swarm_token"])
        self._authorization = me.authorization.encode()
        self._manifest = manifest_digest(args["manifest"])
        self._fetch = JobFolder(args["fetch_folder"])
        self._peer_list = PeerList(args["peers_file"])
        self._blobs = Blobs(args["hf_home"], args["manifest"], args["slots"] or stream_count(self._host))
        self._peers = Peers(self._peer_list, me=me, ports=args["ports"], manifest=self._manifest)
        files = enumerate(wanted_files(args["manifest"]))
        self._tracker = Tracker(
            run=args["run"],
            manifest=self._manifest,
            sizes={index: file.size_bytes for index, file in files if file.is_sha256},
            peers=self._peers,
        )
        self.asked_at = time.monotonic()
        self._is_told_to_end = False
        self._is_report_due = False
        self._peers_version = self._peer_list.version

    @property
    def served_bytes(self) -> int:
        return self._blobs.served_bytes

    def tend(self) -> None:
        """What has to be done about once a second, besides answering."""
        self._tracker.tend()

    def reason_to_end(self, now: float) -> str | None:
        """None while somebody may need this share."""
        if self._peers_version != (version := self._peer_list.version):
            # The operator starts something and relies on this share, as it runs: what was the end is not any more.
            self._peers_version, self.asked_at = version, now
            self._is_told_to_end, self._is_report_due = False, True
        quiet_s = now - self.asked_at
        if quiet_s > _QUIET_S and self._is_told_to_end:
            return "every node has every file"
        if quiet_s > _QUIET_S and not self._is_report_due and self._tracker.is_complete():
            self._peers.end(name for name in self._peers.nodes() if name != self._node)
            return "every node has every file"
        if quiet_s > self._linger_s and not self._fetch.is_running():
            return f"nobody has asked for {self._linger_s:.0f} s"
        return None

    def is_peer(self, address: str) -> bool:
        return address == self._host or address in self._peer_list.nodes().values()

    def refusal(self, head: Head) -> Answer | None:
        """Strangers first, then those who do not know the token, then what nobody may ask."""
        if not self.is_peer(head.address):
            return error_answer(403, f"{head.address} is no node of this run")
        given = head.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(given, self._authorization):
            return error_answer(401, "the token is not the one of this run", {"WWW-Authenticate": "Bearer"})
        if head.path not in (REPORT, STATE, END) and not _BLOB.fullmatch(head.path):
            return error_answer(404, "there is nothing of this name")
        if head.method != (method := method_of(head.path)):
            return error_answer(405, f"only {method} is for this", {"Allow": method})
        return None

    def answer(self, head: Head, body: bytes) -> Answer:
        if head.path == STATE:
            return json_answer(self._state())
        if head.path == END:
            self._is_told_to_end = True
            return json_answer({"manifest": self._manifest})
        self.asked_at = time.monotonic()
        self._is_told_to_end = False
        if head.path == REPORT:
            self._is_report_due = False
            return self._tracker.answer(body, head.address)
        return self._blobs.answer(head.path.removeprefix(BLOBS), head.headers.get("range"))

    def _state(self) -> dict[str, Any]:
        leases = self._fetch.read(LEASES) if self._fetch.is_running() else None
        return {
            "node": self._node,
            "manifest": self._manifest,
            "held": self._blobs.held(),
            "leases": leases or {},
        }


def listen(host: str, ports: list[int]) -> socket.socket:
    """Bind the first of the ports that is free. Raises Refusal."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise Refusal(
                f"cannot listen on {host}",
                why=error.strerror or str(error),
                fix="set network.private_subnet, or the node's private_address, so that it names an address it has",
                found=f"{host} port {port}",
            ) from error
        return listener
    raise Refusal(
        f"none of the ports {ports[0]} to {ports[-1]} is free on {host}",
        why="other programs listen on them all",
        fix="set network.weights_port to the first of some free ports, then run the same command again",
        found=f"{len(ports)} ports in use",
    )
