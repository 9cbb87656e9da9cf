"""Follow a detached job to its end: pass on what it says, notice when it died or stopped saying anything."""

import time
from typing import Any

from k3deploy.remote.job_folder import JobFolder
from k3deploy.remote.protocol import Refusal, Say

# Said again after this time even without news, so that a watcher whose connection is gone ends by itself.
_REPEAT_S = 5.0
# Often at first, as many jobs find little to do; then still often enough that nobody waits for a job that is over.
_FIRST_POLL_S = 0.03
_POLL_S = 0.1
_GROWTH = 1.3


def main(args: dict[str, Any], say: Say) -> Any:
    """`args`: dir, silent_s (the longest time without a word from the job), optionally poll_s, repeat_s.
    Returns its result.

    Raises Refusal with the job's own words, or when it ended without a result or went silent; RuntimeError for a
    fault of ours inside it.
    """
    folder = JobFolder(args["dir"])
    longest_s, repeat_s = args.get("poll_s", _POLL_S), args.get("repeat_s", _REPEAT_S)
    poll_s = _FIRST_POLL_S
    said: Any = None
    said_at = 0.0
    while True:
        state = folder.state()
        if state != "running":
            return _ending(folder, state)
        word = folder.read("progress.json")
        now = time.monotonic()
        if word is not None and (word != said or now - said_at > repeat_s):
            said, said_at = word, now
            say(word["progress"])
        if folder.progress_age_s() > args["silent_s"]:
            raise Refusal(
                f"the job in {folder.path} has said nothing for {folder.progress_age_s():.0f} s",
                why=folder.log_tail() or "it printed nothing",
                fix="run the same command again; if it happens twice, look at the node's disk and kernel log",
                path=folder.file("log"),
            )
        time.sleep(poll_s)
        poll_s = min(longest_s, poll_s * _GROWTH)


def _ending(folder: JobFolder, state: str) -> Any:
    if state == "absent":
        raise Refusal(f"there is no job in {folder.path}", fix="run the same command again", path=folder.path)
    body = folder.read("result.json") or {}
    if "error" in body:
        error = body["error"]
        raise Refusal(error["what"], why=error["why"], fix=error["fix"], **error["context"])
    if "fault" in body:
        raise RuntimeError(f"{body['fault']} (in {folder.file('log')})")
    if "result" not in body:
        raise Refusal(
            f"the job in {folder.path} ended without a result",
            why=folder.log_tail() or "it printed nothing: it was killed, or the machine went down",
            fix="run the same command again: what it had finished is kept",
            path=folder.file("log"),
        )
    return body["result"]
