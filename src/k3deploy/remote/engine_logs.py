"""Follow a container's log from its start and tell at once when the container ends. Resumable: it only reads."""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from k3deploy.remote.container_log import LogDecoder, LogLine, parse_time
from k3deploy.remote.dockerd import Dockerd, DockerRefused, NoDaemon
from k3deploy.remote.protocol import Refusal, Say

# Said at least this often, so that a watcher whose connection is gone ends by itself and a deadline can be kept.
_BEAT_S = 1.0
_BATCH_LINES = 200
# A log that ended while its container runs (the daemon restarted with live-restore) is opened again.
_AGAIN_S = 1.0
_STREAM_SILENCE_S = 86400.0


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: container (name or id), follow (bool), tail ("all" or a number of lines), optionally since (epoch s).

    Says {"now": node's clock, "lines": [[epoch s, text], ...]}; returns how the container is: {"status", "exit_code",
    "oom_killed", "error", "started_at", "finished_at"}, or {"status": "absent"}. Raises Refusal when there is no
    daemon or its log driver keeps nothing that can be read.
    """
    daemon = Dockerd(args.get("socket") or Dockerd().socket_path)
    since = float(args.get("since") or 0)
    while True:
        state = _state(daemon, args["container"])
        if state["status"] == "absent":
            return state
        since = max(since, _pass_on(daemon, args, state, since, say))
        state = _state(daemon, args["container"])
        if not args["follow"] or state["status"] not in ("running", "paused", "restarting"):
            return {key: value for key, value in state.items() if key != "is_framed"}
        time.sleep(_AGAIN_S)


def _state(daemon: Dockerd, container: str) -> dict[str, Any]:
    try:
        body = daemon.get(f"/containers/{container}/json")
    except DockerRefused as refused:
        if refused.status == 404:
            return {"status": "absent"}
        raise
    except NoDaemon as error:
        raise _no_daemon(error) from error
    state = body["State"]
    return {
        "status": state["Status"],
        "exit_code": state["ExitCode"],
        "oom_killed": bool(state.get("OOMKilled")),
        "error": state.get("Error") or "",
        "started_at": parse_time(state["StartedAt"]),
        "finished_at": parse_time(state["FinishedAt"]),
        "is_framed": not body["Config"]["Tty"],
    }


def _pass_on(daemon: Dockerd, args: dict[str, Any], state: dict[str, Any], since: float, say: Say) -> float:
    """Say all lines until the log ends; returns the time of the last one."""
    decoder = LogDecoder(is_framed=state["is_framed"])
    last = since
    for batch in _batches(daemon, args, since, decoder):
        # The daemon takes `since` as "from this moment on": the last line comes once more.
        fresh = [line for line in batch if line.at > since] if since else batch
        if fresh:
            last = fresh[-1].at
        say({"now": time.time(), "lines": [[line.at, line.text] for line in fresh]})
    return last


def _batches(daemon: Dockerd, args: dict[str, Any], since: float, decoder: LogDecoder) -> Iterator[list[LogLine]]:
    chunks: queue.Queue[bytes | Exception | None] = queue.Queue(maxsize=64)
    query = {
        "stdout": "1",
        "stderr": "1",
        "timestamps": "1",
        "follow": "1" if args["follow"] else "0",
        "tail": "all" if args.get("tail") is None else str(args["tail"]),
        "since": f"{since:.9f}" if since else "0",
    }
    threading.Thread(target=_read, args=(daemon, args["container"], query, chunks), daemon=True).start()
    batch: list[LogLine] = []
    while True:
        try:
            chunk = chunks.get(timeout=_BEAT_S)
        except queue.Empty:
            yield batch
            batch = []
            continue
        if chunk is None:
            yield batch + decoder.end()
            return
        if isinstance(chunk, Exception):
            raise chunk
        batch += decoder.feed(chunk)
        if batch and (len(batch) >= _BATCH_LINES or chunks.empty()):
            yield batch
            batch = []


def _read(
    daemon: Dockerd, container: str, query: dict[str, str], chunks: "queue.Queue[bytes | Exception | None]"
) -> None:
    try:
        for chunk in daemon.chunks(f"/containers/{container}/logs", silence_s=_STREAM_SILENCE_S, **query):
            chunks.put(chunk)
    except DockerRefused as refused:
        if refused.status != 404:  # removed meanwhile: the state says so
            chunks.put(
                Refusal(
                    f"the log of container {container} cannot be read",
                    why=refused.message,
                    fix="use a log driver that keeps logs on the node: json-file, local or journald (daemon.json)",
                )
            )
            return
    except NoDaemon:
        pass  # the state that is read next says whether there is still a daemon
    except Exception as error:  # noqa: BLE001 - a thread's failure must reach the main one, whatever it is
        chunks.put(error)
        return
    chunks.put(None)


def _no_daemon(error: NoDaemon) -> Refusal:
    return Refusal(
        "the Docker daemon does not answer",
        why=str(error),
        fix="look at `systemctl status docker` on the node, then run the same command again",
    )
