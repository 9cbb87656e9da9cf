"""One process that receives files by HTTP from peers or from URLs, as told on its stdin (see transfer_worker).

A task has `sources` besides the file: {"name", "address", "ports"} of a peer or {"name", "url"}, tried in order; who
breaks off is followed by the next one at the same byte. With null the file is here and only has to be proved.
Its last word has besides the usual: "gave" (the sources whose bytes are in it, "" for what lay here before) and
"refused" {source: failure}.
"""

import http.client
import os
from contextlib import AbstractContextManager
from typing import Any

from k3deploy.remote.hub_cache import Repository, Wanted
from k3deploy.remote.protocol import Say
from k3deploy.remote.receive_file import ReceiveFile
from k3deploy.remote.receive_stream import PeerStreams, Unavailable, first_byte, next_piece, url_stream
from k3deploy.remote.share_protocol import Me
from k3deploy.remote.tidy import link_blob
from k3deploy.remote.transfer_worker import Task, read_settings, serve_tasks, telling

ENTRY = "receive_worker"


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """stdin: one line of settings (hf_home, repo, commit, and for peers address, swarm_token), then tasks."""
    settings = read_settings()
    serve_tasks(_Receive(settings), 1, telling(say))


class _Receive:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._repository = Repository(settings["hf_home"], settings["repo"], settings["commit"])
        self._peers = PeerStreams(Me(settings.get("address", ""), settings.get("swarm_token", "")))

    def __call__(self, task: Task) -> dict[str, Any]:
        if task.body["sources"] is None or self._came_another_way(task.file):
            return task.prove(self._repository.link(task.file.path))
        refused: dict[str, dict[str, Any]] = {}
        with ReceiveFile(
            self._repository, task.file, is_fresh=task.body["is_fresh"], go_on=task.still_reading
        ) as received:
            gave = {""} if received.offset else set[str]()
            for source in task.body["sources"]:
                if received.is_whole:
                    break
                before = received.offset
                try:
                    self._receive(task, source, received)
                except Unavailable as error:
                    refused[source["name"]] = error.failure
                if received.offset != before:
                    gave.add(source["name"])
            if received.is_whole:
                task.landed()
                word = received.finish()
            else:
                word = {"failure": next(reversed(refused.values()))}
        return {**word, "gave": sorted(gave), "refused": refused}

    def _came_another_way(self, file: Wanted) -> bool:
        """The blob is here: another path of the repository has the same content, or a client was quicker."""
        is_here = os.path.exists(self._repository.blob(file.digest))
        if is_here and not os.path.lexists(self._repository.link(file.path)):
            link_blob(self._repository, file)
        return is_here

    def _receive(self, task: Task, source: dict[str, Any], received: ReceiveFile) -> None:
        """Raises Unavailable when it ends before the file does, and OSError only for the disk."""
        with self._stream(task, source, received.offset) as response:
            if first_byte(response, task.file, received.offset) == 0:
                received.restart()
            while not received.is_whole:
                received.append(next_piece(response))
                task.go_on()

    def _stream(
        self, task: Task, source: dict[str, Any], offset: int
    ) -> "AbstractContextManager[http.client.HTTPResponse]":
        if "url" in source:
            return url_stream(source["url"], offset)
        return self._peers.open(source, task.file, offset)
