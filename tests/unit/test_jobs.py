"""Detached jobs: started once whatever the race, alive by their lock, ended and watched by what they wrote."""

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote.job_folder import JobFolder
from k3deploy.remote.journal import Journal
from tests.unit.remote_program import finish, let_others_in, run, section, start, until

# A job needs a body under k3deploy.remote; `hashing` of an empty manifest is quick, `job_watch` of nothing waits.
_EMPTY = {"repo": "a/b", "commit": "0" * 40, "files": []}


def _hash_args(folder: Path, **more: Any) -> dict[str, Any]:
    return {"hf_home": str(folder), "manifest": _EMPTY, "level": "resume", **more}


def _start_args(folder: Path, *, entry: str = "hashing", args: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "id": f"test-{folder.name}",
        "dir": str(folder / "job"),
        "entry": entry,
        "args": _hash_args(folder) if args is None else args,
        **more,
    }


@pytest.fixture
def long_job(tmp_path: Path) -> Any:
    """A job that runs until it is told to stop: it watches another folder whose lock this process holds."""
    watched = JobFolder(str(tmp_path / "watched"))
    Path(watched.path).mkdir()
    held = watched.hold()
    assert held is not None
    args = _start_args(
        tmp_path, entry="job_watch", args={"dir": watched.path, "silent_s": 1000, "poll_s": 0.05, "repeat_s": 0.2}
    )
    yield args, watched
    os.close(held)
    run("job_stop", {"id": args["id"], "dir": args["dir"], "grace_s": 10})


def test_a_job_runs_to_its_result(tmp_path: Path) -> None:
    started = run("job_start", _start_args(tmp_path), ("hashing",)).result
    assert started["is_new"]
    watched = run("job_watch", {"dir": str(tmp_path / "job"), "silent_s": 30}).result
    assert watched["files"] == 0
    assert watched["faults"] == []
    answer = section("job", dir=str(tmp_path / "job"))
    assert answer["state"] == "finished"
    assert answer["result"] == watched


def test_a_job_outlives_the_program_that_started_it(long_job: Any) -> None:
    args, watched = long_job
    run("job_start", args, ("job_watch",))
    assert section("job", dir=args["dir"])["state"] == "running"
    assert JobFolder(args["dir"]).is_running()
    assert watched.is_running()


def test_starting_a_running_job_again_does_nothing(long_job: Any) -> None:
    args, _ = long_job
    assert run("job_start", args, ("job_watch",)).result["is_new"]
    process = JobFolder(args["dir"]).read("process.json")
    again = run("job_start", args, ("job_watch",)).result
    assert again == {"state": "running", "is_new": False, "unit": again["unit"]}
    assert JobFolder(args["dir"]).read("process.json") == process


def test_many_starts_at_once_give_one_job(long_job: Any) -> None:
    args, _ = long_job
    racing = [start("job_start", args, ("job_watch",)) for _ in range(6)]
    results = [finish(process).result for process in racing]
    assert [result["is_new"] for result in results].count(True) == 1
    pids = subprocess.run(
        ["pgrep", "-f", f"{args['dir']}/job.py"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(pids) == 1


def test_a_second_process_of_the_same_job_ends_at_once(long_job: Any) -> None:
    args, _ = long_job
    run("job_start", args, ("job_watch",))
    process = JobFolder(args["dir"]).read("process.json")
    second = subprocess.run(["python3", "-I", f"{args['dir']}/job.py"], capture_output=True, check=False, timeout=30)
    assert second.returncode == 0
    assert JobFolder(args["dir"]).read("process.json") == process
    assert section("job", dir=args["dir"])["state"] == "running"


def test_stop_ends_a_job_cleanly_and_is_idempotent(long_job: Any) -> None:
    args, _ = long_job
    run("job_start", args, ("job_watch",))
    stop = {"id": args["id"], "dir": args["dir"], "grace_s": 20}
    assert run("job_stop", stop).result == {"was_running": True}
    assert run("job_stop", stop).result == {"was_running": False}
    answer = section("job", dir=args["dir"])
    assert answer["state"] == "finished"
    assert answer["error"]["what"] == "the job was stopped"


def test_a_stopped_job_can_be_started_again(long_job: Any) -> None:
    args, _ = long_job
    run("job_start", args, ("job_watch",))
    run("job_stop", {"id": args["id"], "dir": args["dir"], "grace_s": 20})
    assert run("job_start", args, ("job_watch",)).result["is_new"]
    assert section("job", dir=args["dir"])["state"] == "running"


def test_a_killed_job_is_dead_and_the_watcher_says_so(long_job: Any) -> None:
    args, _ = long_job
    run("job_start", args, ("job_watch",))
    watcher = start("job_watch", {"dir": args["dir"], "silent_s": 1000, "poll_s": 0.05})
    pid = (JobFolder(args["dir"]).read("process.json") or {})["pid"]
    os.kill(pid, signal.SIGKILL)
    error = finish(watcher).error
    assert error["what"] == f"the job in {args['dir']} ended without a result"
    assert "killed" in error["why"]
    assert section("job", dir=args["dir"])["state"] == "dead"


def test_a_silent_job_is_given_up(long_job: Any) -> None:
    args, _watched = long_job
    run("job_start", args, ("job_watch",))
    os.utime(f"{args['dir']}/job.py", (time.time() - 100, time.time() - 100))
    error = run("job_watch", {"dir": args["dir"], "silent_s": 50, "poll_s": 0.05}).error
    assert "has said nothing for" in error["what"]


def test_the_watcher_passes_on_what_the_job_says(long_job: Any) -> None:
    args, watched = long_job
    watched.write("progress.json", {"count": 1, "progress": {"bytes_done": 5}})
    run("job_start", args, ("job_watch",))
    watcher = start("job_watch", {"dir": args["dir"], "silent_s": 1000, "poll_s": 0.05})
    assert watcher.stdout is not None
    assert json.loads(watcher.stdout.readline()) == {"progress": {"bytes_done": 5}}
    watched.write("progress.json", {"count": 2, "progress": {"bytes_done": 9}})
    # Words that follow each other within half a second may be left out, but never the last one for long.
    lines = (json.loads(line) for line in watcher.stdout)
    assert {"progress": {"bytes_done": 9}} in lines
    watcher.kill()
    watcher.communicate()


def test_a_refusal_inside_a_job_reaches_the_watcher_word_for_word(tmp_path: Path) -> None:
    args = _start_args(tmp_path, entry="job_watch", args={"dir": str(tmp_path / "nothing"), "silent_s": 1})
    run("job_start", args, ("job_watch",))
    error = run("job_watch", {"dir": args["dir"], "silent_s": 30}).error
    assert error["what"] == f"there is no job in {tmp_path / 'nothing'}"
    assert error["fix"] == "run the same command again"
    assert error["context"] == {"path": str(tmp_path / "nothing")}


def test_a_fault_inside_a_job_is_a_fault_of_the_watcher(tmp_path: Path) -> None:
    run("job_start", _start_args(tmp_path, args={"level": "resume"}), ("hashing",))
    watched = run("job_watch", {"dir": str(tmp_path / "job"), "silent_s": 30})
    assert watched.exit_code == 11
    assert "KeyError: 'manifest'" in watched.lines[-1]["fault"]
    assert "KeyError" in (tmp_path / "job" / "log").read_text()


def test_a_job_that_does_not_come_up_is_said_with_its_log(tmp_path: Path) -> None:
    # The entry is not in the bundle: the job itself reports it, as a fault.
    started = run("job_start", _start_args(tmp_path, entry="no_such_program"), ())
    assert started.exit_code == 0
    watched = run("job_watch", {"dir": str(tmp_path / "job"), "silent_s": 30})
    assert "No module named 'k3deploy.remote.no_such_program'" in watched.lines[-1]["fault"]


def test_secrets_are_in_no_file_once_the_job_runs(long_job: Any) -> None:
    args, _ = long_job
    secret = "hf_a-secret-that-is-nowhere"
    run("job_start", {**args, "secrets": {"hf_token": secret}}, ("job_watch",))
    until(lambda: not Path(args["dir"], "secrets.json").exists(), "the secrets file is gone")
    for path in Path(args["dir"]).iterdir():
        assert secret not in path.read_text(), path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 or path.name == "start.lock", path
    pid = (JobFolder(args["dir"]).read("process.json") or {})["pid"]
    assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_secrets_are_removed_when_the_job_cannot_start(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "args.json").mkdir()  # cannot be replaced by a file
    ran = run("job_start", _start_args(tmp_path, secrets={"hf_token": "hf_x"}), ("hashing",))
    assert ran.exit_code == 11
    assert not (folder / "secrets.json").exists()


def test_a_full_disk_leaves_room_for_the_last_word(tmp_path: Path) -> None:
    folder = JobFolder(str(tmp_path))
    folder.keep_room()
    assert Path(folder.file("room")).stat().st_size == 16384
    # What is written to this device finds no space.
    Path(folder.file(f"result.json.{os.getpid()}.tmp")).symlink_to("/dev/full")
    folder.write_last("result.json", {"error": "the disk is full"})
    assert folder.read("result.json") == {"error": "the disk is full"}
    assert not Path(folder.file("room")).exists()


@pytest.mark.parametrize("text", ["", "[]", "\0\0\0"])
def test_a_last_word_that_a_power_cut_emptied_is_none(tmp_path: Path, text: str) -> None:
    folder = JobFolder(str(tmp_path))
    for name in ("alive", "job.py"):
        (tmp_path / name).touch()
    for name in ("result.json", "progress.json", "process.json"):
        (tmp_path / name).write_text(text)
    said = section("job", dir=folder.path)
    assert (said["state"], said["result"], said["error"]) == ("finished", None, None)
    error = run("job_watch", {"dir": folder.path, "silent_s": 5.0}).error
    assert error["what"] == f"the job in {folder.path} ended without a result"
    assert run("job_stop", {"id": "x", "dir": folder.path}).result == {"was_running": False}


def test_what_must_outlive_a_power_cut_is_on_the_disk_before_it_takes_the_old_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[str] = []
    sync, replace = os.fsync, os.replace

    def syncing(descriptor: int) -> None:
        acts.append("sync")
        sync(descriptor)

    def replacing(old: str, new: str) -> None:
        acts.append("replace")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    Journal(str(tmp_path)).add({"kind": "folder", "path": "/x"})
    assert acts == ["sync", "replace"]
    assert Journal(str(tmp_path)).entries() == [{"kind": "folder", "path": "/x"}]


def test_stop_does_not_touch_a_process_that_took_over_the_number(tmp_path: Path) -> None:
    folder = JobFolder(str(tmp_path / "job"))
    Path(folder.path).mkdir()
    bystander = subprocess.Popen(["sleep", "60"])
    folder.write("process.json", {"pid": bystander.pid, "started": "1"})
    held = folder.hold()
    assert held is not None
    stopping = start("job_stop", {"id": "x", "dir": folder.path, "grace_s": 0.2, "kill_s": 0.2})
    assert finish(stopping).error["what"] == "the job x cannot be ended"
    assert bystander.poll() is None
    os.close(held)
    bystander.kill()
    bystander.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a job for somebody else")
def test_root_starts_the_job_as_the_login_user(tmp_path: Path) -> None:
    let_others_in(tmp_path)
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf").chmod(0o777)
    args = _start_args(tmp_path, args=_hash_args(tmp_path / "hf"), user="nobody")
    # The machine's own python: the one that runs the tests may live where others may not look.
    assert finish(start("job_start", args, ("hashing",), python="/usr/bin/python3")).result["is_new"]
    assert run("job_watch", {"dir": args["dir"], "silent_s": 30}).result["files"] == 0
    nobody = Path(args["dir"]).stat().st_uid
    assert nobody != 0
    assert Path(args["dir"], "result.json").stat().st_uid == nobody
