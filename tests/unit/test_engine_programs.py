"""The engine's small programs on a node: what runs and answers, who holds a port, keys, files, export, purge."""

import base64
import gzip
import json
import os
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from k3deploy.adapters.bundle import script
from k3deploy.remote.logs_export import Kept

from .container_daemon import ContainerDaemon, container_daemon, frame, inspected, listening
from .remote_program import run, section


@pytest.fixture
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerDaemon]:
    with container_daemon(tmp_path_factory.mktemp("d")) as served:
        yield served


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "k3deploy"
    (folder / "run-1").mkdir(parents=True)
    return folder


def look(docker: ContainerDaemon, base: Path, ports: tuple[int, ...] = ()) -> Any:
    return section("container", name="sgl", folder=str(base / "run-1"), ports=list(ports), socket=docker.path)


def test_a_container_is_told_by_what_it_runs(docker: ContainerDaemon, base: Path) -> None:
    docker.answers["/containers/sgl/json"] = (200, inspected())
    (base / "run-1" / "launch.json").write_text('{"schema": 1, "container": "sgl"}')
    seen = look(docker, base)
    assert (seen["daemon"], seen["container"]["id"], seen["container"]["name"]) == ("running", "c" * 64, "sgl")
    assert (seen["container"]["image"], seen["container"]["cmd"], seen["container"]["env"]) == (
        "img",
        ["sglang", "serve"],
        ["A=1"],
    )
    assert seen["container"]["started"] == "2026-11-30T12:00:01.123456789Z"
    assert seen["container"]["finished_at"] == 0
    assert (seen["launch"], seen["recorded"], seen["other_claims"]) == ({"schema": 1, "container": "sgl"}, None, [])


def test_no_container_no_daemon_and_a_silent_daemon_are_three_answers(
    docker: ContainerDaemon, base: Path, tmp_path: Path
) -> None:
    seen = look(docker, base)
    assert (seen["daemon"], seen["container"]) == ("running", None)
    docker.answers["/containers/sgl/json"] = (500, {"message": "it is ill"})
    seen = look(docker, base)
    assert (seen["daemon"], seen["why"]) == ("silent", "it is ill")
    seen = section("container", name="sgl", folder=str(base / "run-1"), ports=[], socket=str(tmp_path / "no.sock"))
    assert seen["daemon"] == "absent"


def test_other_runs_that_mean_the_same_container_are_named(docker: ContainerDaemon, base: Path) -> None:
    for name, container in (("run-0", "sgl"), ("run-2", "other")):
        (base / name).mkdir()
        (base / name / "launch.json").write_text(json.dumps({"container": container}))
    (base / "run-3").mkdir()
    (base / "run-3" / "launch.json").write_text("half a fi")
    assert look(docker, base)["other_claims"] == ["run-0"]


def test_who_listens_on_a_port_is_named_by_pid_and_program(docker: ContainerDaemon, base: Path) -> None:
    with listening() as port:
        found = look(docker, base, (port, 1))["listeners"]
    assert len(found) == 1
    assert (found[0]["port"], found[0]["pid"], found[0]["container"]) == (port, os.getpid(), None)
    assert "python" in found[0]["program"] or "pytest" in found[0]["program"]


class Api(BaseHTTPRequestHandler):
    """The head's HTTP side."""

    def do_GET(self) -> None:
        cards = {"data": [{"id": "m", "max_model_len": 7}]}
        if self.path == "/v1/models" and self.headers.get("Authorization") != "Bearer the-key":
            self.send_response(401)
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(cards).encode() if self.path == "/v1/models" else b"")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Nothing."""


@pytest.fixture
def api_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def engine(docker: ContainerDaemon, base: Path, cmd: list[str], **args: Any) -> Any:
    docker.answers["/containers/sgl/json"] = (200, inspected(Cmd=cmd))
    return section("engine", name="sgl", folder=str(base / "run-1"), socket=docker.path, **args)


def test_the_heads_health_and_models_are_asked_where_its_command_says(
    docker: ContainerDaemon, base: Path, api_port: int
) -> None:
    key = base / "run-1" / "engine.yaml"
    key.write_text('api-key: "the-key"\n')
    cmd = ["sglang", "serve", "--host", "0.0.0.0", f"--port={api_port}", "--node-rank", "0"]
    seen = engine(docker, base, cmd, key_file=str(key))
    assert (seen["node_rank"], seen["health"]["status"]) == (0, 200)
    assert seen["models"]["body"] == {"data": [{"id": "m", "max_model_len": 7}]}
    assert "the-key" not in json.dumps(seen)


def test_a_follower_is_asked_for_its_health_alone(docker: ContainerDaemon, base: Path, api_port: int) -> None:
    cmd = ["sglang", "serve", "--host", "127.0.0.1", "--port", str(api_port), "--node-rank", "2"]
    seen = engine(docker, base, cmd)
    assert (seen["node_rank"], seen["health"]["status"], seen["models"]) == (2, 200, None)


def test_an_engine_that_does_not_answer_has_no_status_but_a_reason(docker: ContainerDaemon, base: Path) -> None:
    with listening() as port:
        pass  # closed again: nobody listens there
    seen = engine(docker, base, ["sglang", "serve", "--port", str(port)])
    assert seen["health"]["status"] is None
    assert seen["health"]["error"].startswith("ConnectionRefusedError")


def test_nothing_is_asked_of_a_container_that_is_down(docker: ContainerDaemon, base: Path) -> None:
    docker.answers["/containers/sgl/json"] = (200, inspected(status="exited", exit_code=137))
    (base / "run-1" / "ready.json").write_text('{"schema": 1}')
    seen = section("engine", name="sgl", folder=str(base / "run-1"), socket=docker.path)
    assert (seen["health"], seen["models"], seen["ready"]) == (None, None, {"schema": 1})


def test_a_key_is_written_once_for_root_alone_and_kept(base: Path) -> None:
    path = base / "run-1" / "engine.yaml"
    first = run("api_key", {"path": str(path), "secrets": {"file": 'api-key: "one"\n'}}).result
    assert first == {"path": str(path), "is_new": True}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = run("api_key", {"path": str(path), "secrets": {"file": 'api-key: "two"\n'}, "show": True}).result
    assert again == {"path": str(path), "is_new": False, "key": "one"}


def test_a_key_that_is_gone_is_explained(base: Path) -> None:
    path = str(base / "run-1" / "engine.yaml")
    assert run("api_key", {"path": path, "show": True}).error["what"] == f"the API key cannot be read from {path}"


def test_a_key_is_not_on_the_programs_command_line() -> None:
    packed = script("api_key", {"path": "/x", "secrets": {"file": "secret-text"}})
    assert b"secret-text" in packed  # it travels on stdin, which `ps` does not show


def test_run_files_are_written_whole_and_removed(base: Path) -> None:
    old, new = base / "run-1" / "old.json", base / "run-1" / "new.json"
    old.write_text("{}")
    args = {"write": {str(new): {"a": 1}}, "remove": [str(old), str(base / "never.json")]}
    assert run("run_file", args).result == {"written": [str(new)], "removed": [str(old)]}
    assert json.loads(new.read_text()) == {"a": 1}
    assert [path.name for path in (base / "run-1").iterdir()] == ["new.json"]


def test_logs_of_container_and_jobs_are_packed_without_secrets(docker: ContainerDaemon, base: Path) -> None:
    job = base / "run-1" / "jobs" / "weights-fetch"
    job.mkdir(parents=True)
    (job / "log").write_text("token hf_abcdefghijklmnopqrst\n")
    (job / "result.json").write_text('{"result": {}}')
    (job / "secrets.json").write_text('{"hf_token": "hf_abcdefghijklmnopqrst"}')
    docker.answers["/containers/abc/json"] = (200, inspected())
    docker.answers["/containers/abc/logs"] = (200, frame("2026-11-30T12:00:02.0Z api_key='k3-very-secret'\n"))
    args = {
        "container": "abc",
        "jobs": {"weights-fetch": str(job)},
        "head_bytes": 1000,
        "tail_bytes": 1000,
        "socket": docker.path,
    }
    ran = run("logs_export", args)
    texts = {said["name"]: gzip.decompress(base64.b64decode(said["chunk"])).decode() for said in ran.progress}
    assert texts == {
        "engine": "1796040002.000 api_key='***'\n",
        "job-weights-fetch": 'token ***\n{"result": {}}\n'.replace("token", "== log\ntoken", 1).replace(
            "{", "== result.json\n{", 1
        ),
    }
    assert ran.result["missing"] == {}


def test_a_container_log_that_cannot_be_read_does_not_hide_the_jobs(docker: ContainerDaemon) -> None:
    args = {"container": "gone", "jobs": {}, "head_bytes": 10, "tail_bytes": 10, "socket": docker.path}
    result = run("logs_export", args).result
    assert result["files"] == {}
    assert "No such thing" in result["missing"]["engine"]


def test_of_a_long_log_head_and_tail_are_kept() -> None:
    kept = Kept(20, 20)
    for number in range(100):
        kept.add(f"line {number:02d}")  # 8 bytes with its end
    assert kept.text().splitlines() == ["line 00", "line 01", "== 768 bytes left out here", "line 98", "line 99"]
    assert (kept.lines, kept.left_out_bytes) == (100, 768)  # 96 lines


def test_a_short_log_is_whole() -> None:
    kept = Kept(20, 20)
    for text in ("a", "b", "c"):
        kept.add(text)
    assert kept.text() == "a\nb\nc\n"


def test_a_line_longer_than_the_tail_is_still_kept() -> None:
    kept = Kept(5, 5)
    kept.add("first")
    kept.add("a much longer line than the limit")
    assert "a much longer line than the limit" in kept.text()


def cache(tmp_path: Path, *others: str) -> Path:
    """A cache with the model in it, as the client leaves it."""
    home = tmp_path / "hf"
    for model in ("models--moonshotai--Kimi-K3", *others):
        blobs = home / "hub" / model / "blobs"
        blobs.mkdir(parents=True)
        (blobs / "aa").write_bytes(b"x" * 8192)
        snapshot = home / "hub" / model / "snapshots" / "rev"
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors").symlink_to("../../blobs/aa")
        (home / "hub" / ".locks" / model).mkdir(parents=True)
    (home / "hub" / "CACHEDIR.TAG").write_text("x")
    return home


def purge(home: Path, base: Path, *, is_ours: bool) -> Any:
    entries = [{"kind": "folder", "path": str(home)}] if is_ours else []
    (base / "run-1" / "created.json").write_text(json.dumps({"schema": 1, "entries": entries}))
    args = {"hf_home": str(home), "models": ["models--moonshotai--Kimi-K3"], "folder": str(base / "run-1")}
    return run("weights_purge", args)


def test_a_cache_of_ours_is_emptied(tmp_path: Path, base: Path) -> None:
    home = cache(tmp_path)
    result = purge(home, base, is_ours=True).result
    assert result["freed_bytes"] >= 8192
    assert list(home.iterdir()) == []
    assert purge(home, base, is_ours=True).result == {"freed_bytes": 0, "removed": []}


def test_other_models_and_other_peoples_cache_stay(tmp_path: Path, base: Path) -> None:
    home = cache(tmp_path, "models--other--one")
    purge(home, base, is_ours=True)
    assert sorted(path.name for path in (home / "hub").iterdir()) == [".locks", "CACHEDIR.TAG", "models--other--one"]
    assert [path.name for path in (home / "hub" / ".locks").iterdir()] == ["models--other--one"]


def test_in_a_cache_that_was_there_only_the_model_goes(tmp_path: Path, base: Path) -> None:
    home = cache(tmp_path)
    purge(home, base, is_ours=False)
    assert sorted(path.name for path in (home / "hub").iterdir()) == [".locks", "CACHEDIR.TAG"]


def test_weights_behind_a_link_are_not_followed(tmp_path: Path, base: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "file").write_text("x")
    home = tmp_path / "hf"
    (home / "hub").mkdir(parents=True)
    (home / "hub" / "models--moonshotai--Kimi-K3").symlink_to(shared)
    error = purge(home, base, is_ours=True).error
    assert str(shared) in error["what"]
    assert (shared / "file").exists()


def held(base: Path, home: Path) -> Any:
    return section(
        "holdings",
        folder=str(base / "run-1"),
        run="run-1",
        caches=[str(home / "hub" / "models--moonshotai--Kimi-K3"), str(home / "hub" / "models--a--draft")],
        daemon_json=str(base / "daemon.json"),
    )


def test_what_a_run_has_on_a_node_is_listed(tmp_path: Path, base: Path) -> None:
    home = cache(tmp_path)
    (base / "run-1" / "created.json").write_text('{"schema": 1, "entries": [{"kind": "folder", "path": "/p"}]}')
    (base / "run-1" / "engine.yaml").write_text("x")
    job = base / "run-1" / "jobs" / "fetch"
    job.mkdir(parents=True)
    (job / "job.py").write_text("x")
    (job / "result.json").write_text("{}")
    found = held(base, home)
    assert found["jobs"] == [{"name": "fetch", "dir": str(job), "state": "finished"}]
    assert found["files"] == ["created.json", "engine.yaml", "jobs"]
    assert found["journal"] == [{"kind": "folder", "path": "/p"}]
    assert 8192 <= found["weights"]["bytes"] < 40_000  # one file, however many links lead to it
    assert found["has_backup"] is False
    (base / "daemon.json.k3deploy-run-1").write_text("{}")
    assert held(base, home)["has_backup"] is True


def test_a_node_without_the_run_has_nothing(tmp_path: Path) -> None:
    found = held(tmp_path / "k3deploy", tmp_path / "hf")
    assert found == {
        "exists": False,
        "jobs": [],
        "files": [],
        "journal": [],
        "has_backup": False,
        "weights": {"path": str(tmp_path / "hf/hub/models--moonshotai--Kimi-K3"), "bytes": None},
    }


def test_clearing_keeps_the_journal_as_long_as_it_can_undo_something(base: Path) -> None:
    folder = base / "run-1"
    (folder / "created.json").write_text('{"schema": 1, "entries": [{"kind": "folder", "path": "/p"}]}')
    (folder / "engine.yaml").write_text("x")
    (folder / "client" / "lib").mkdir(parents=True)
    result = run("run_clear", {"folder": str(folder)}).result
    assert result == {"removed": ["engine.yaml", "client"], "is_gone": False}  # the key first
    assert [path.name for path in folder.iterdir()] == ["created.json"]


def test_clearing_removes_the_folder_that_nothing_is_noted_in(base: Path) -> None:
    (base / "run-1" / "launch.json").write_text("{}")
    assert run("run_clear", {"folder": str(base / "run-1")}).result == {"removed": ["launch.json"], "is_gone": True}
    assert not base.exists()
    assert run("run_clear", {"folder": str(base / "run-1")}).result == {"removed": [], "is_gone": True}


def test_another_runs_folder_stays(base: Path) -> None:
    (base / "run-2").mkdir()
    run("run_clear", {"folder": str(base / "run-1")})
    assert [path.name for path in base.iterdir()] == ["run-2"]


def test_files_of_a_running_job_are_not_taken_from_under_it(base: Path) -> None:
    import fcntl

    job = base / "run-1" / "jobs" / "fetch"
    job.mkdir(parents=True)
    with (job / "alive").open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        error = run("run_clear", {"folder": str(base / "run-1")}).error
    assert error["what"] == "jobs of this run are still running: fetch"
    assert job.exists()
