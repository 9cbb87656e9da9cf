"""A container's log taken apart: frames, times, carriage returns, secrets; and followed until the container ends."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3deploy.remote.container_log import LogDecoder, parse_time
from k3deploy.remote.redact import redact

from .container_daemon import STDERR, STDOUT, ContainerDaemon, container_daemon, frame, inspected
from .remote_program import finish, run, start, until

T1, T2 = "2026-11-30T12:00:02.000000000Z", "2026-11-30T12:00:03.500000000Z"
AT1, AT2 = 1_796_040_002.0, 1_796_040_003.5  # the same moments, by `date -d ... +%s`


def texts(decoder: LogDecoder, data: bytes) -> list[tuple[float, str]]:
    return [(line.at, line.text) for line in decoder.feed(data)]


def test_a_line_has_the_time_at_which_it_was_printed() -> None:
    assert texts(LogDecoder(is_framed=True), frame(f"{T1} hello\n")) == [(AT1, "hello")]


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 20, 45])
def test_frames_may_arrive_in_any_pieces(cut: int) -> None:
    data = frame(f"{T1} one\n") + frame(f"{T2} two\n")
    decoder = LogDecoder(is_framed=True)
    assert texts(decoder, data[:cut]) + texts(decoder, data[cut:]) == [(AT1, "one"), (AT2, "two")]


def test_each_state_of_a_progress_bar_is_a_line() -> None:
    bar = f"{T1} \rshards:   0% | 0/96\rshards:  43% | 41/96\rshards: 100% | 96/96\n"
    assert [text for _, text in texts(LogDecoder(is_framed=True), frame(bar))] == [
        "shards:   0% | 0/96",
        "shards:  43% | 41/96",
        "shards: 100% | 96/96",
    ]


def test_a_bar_without_its_newline_gives_its_finished_states() -> None:
    # Docker hands out a long line in pieces, each with a time of its own.
    decoder = LogDecoder(is_framed=True)
    assert texts(decoder, frame(f"{T1} \rshards:  10%\rshards:  2")) == [(AT1, "shards:  10%")]
    assert texts(decoder, frame(f"{T2} 0%\r")) == [(AT2, "shards:  20%")]


def test_the_two_streams_do_not_mix() -> None:
    decoder = LogDecoder(is_framed=True)
    assert texts(decoder, frame(f"{T1} out", STDOUT) + frame(f"{T1} err", STDERR)) == []
    assert texts(decoder, frame("put\n", STDOUT)) == [(AT1, "output")]
    assert [line.text for line in decoder.end()] == ["err"]


def test_a_terminals_log_has_no_frames() -> None:
    assert texts(LogDecoder(is_framed=False), f"{T1} one\r\n{T2} two\r\n".encode()) == [(AT1, "one"), (AT2, "two")]


def test_bytes_that_are_no_text_do_not_break_it() -> None:
    assert texts(LogDecoder(is_framed=True), frame(T1.encode() + b" \xff\xfe ok\n")) == [(AT1, "\ufffd\ufffd ok")]


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        ("2026-11-30T12:00:02Z", 1_796_040_002.0),
        ("2026-11-30T12:00:02.25Z", 1_796_040_002.25),
        ("2026-11-30T14:00:02+02:00", 1_796_040_002.0),
        ("2026-11-30T06:30:02-05:30", 1_796_040_002.0),
        ("0001-01-01T00:00:00Z", 0.0),
    ],
)
def test_dockers_times(stamp: str, at: float) -> None:
    assert parse_time(stamp) == at


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="not a time"):
        parse_time("yesterday")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token hf_abcdefghijklmnopqrst end", "token *** end"),
        ("api_key='k3-secret-value', port=8000", "api_key='***', port=8000"),
        ("--api-key k3-secret-value --port 1", "--api-key *** --port 1"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
    ],
)
def test_secrets_do_not_leave_the_node(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "max_total_num_tokens=140352, #tokens: 140352, eos_token: 163586",
        "api_key=None, admin_api_key=None, tokenizer_path='moonshotai/Kimi-K3'",
        "Applying special tokens cache patch for Kimi tokenizer",
    ],
)
def test_what_the_watcher_reads_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.fixture
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerDaemon]:
    folder: Path = tmp_path_factory.mktemp("d")
    with container_daemon(folder) as served:
        yield served


def followed(docker: ContainerDaemon, **args: object) -> dict[str, object]:
    return {"container": "sgl", "follow": True, "socket": docker.path, **args}


def test_following_ends_with_the_container_and_says_how_it_ended(docker: ContainerDaemon) -> None:
    docker.answers["/containers/sgl/json"] = [
        (200, inspected()),
        (200, inspected(status="exited", exit_code=137)),
    ]
    docker.answers["/containers/sgl/logs"] = (200, frame(f"{T1} one\n") + frame(f"{T2} two\n"))
    ran = run("engine_logs", followed(docker))
    assert [line for said in ran.progress for line in said["lines"]] == [[AT1, "one"], [AT2, "two"]]
    assert ran.result == {
        "status": "exited",
        "exit_code": 137,
        "oom_killed": False,
        "error": "",
        "started_at": 1_796_040_001.123456789,
        "finished_at": 1_796_040_009.0,
    }
    query = next(query for _, path, query in docker.asked if path.endswith("/logs"))
    assert query == {"stdout": "1", "stderr": "1", "timestamps": "1", "follow": "1", "tail": "all", "since": "0"}


def test_a_quiet_container_still_gives_a_sign_of_life(docker: ContainerDaemon) -> None:
    docker.hold, docker.later = threading.Event(), frame(f"{T2} late\n")
    docker.answers["/containers/sgl/json"] = [(200, inspected()), (200, inspected(status="exited"))]
    docker.answers["/containers/sgl/logs"] = (200, frame(f"{T1} one\n"))
    process = start("engine_logs", followed(docker))
    assert process.stdout is not None
    first = process.stdout.readline()
    beat = process.stdout.readline()
    docker.hold.set()
    ran = finish(process)
    assert b'"one"' in first
    assert b'"lines":[]' in beat
    assert [line for said in ran.progress for line in said["lines"]] == [[AT2, "late"]]


def test_a_log_that_ends_while_the_container_runs_is_opened_again_where_it_ended(docker: ContainerDaemon) -> None:
    docker.answers["/containers/sgl/json"] = [
        (200, inspected()),
        (200, inspected()),
        (200, inspected()),
        (200, inspected(status="exited")),
    ]
    docker.answers["/containers/sgl/logs"] = [
        (200, frame(f"{T1} one\n")),
        (200, frame(f"{T1} one\n") + frame(f"{T2} two\n")),
    ]
    ran = run("engine_logs", followed(docker))
    assert [line for said in ran.progress for line in said["lines"]] == [[AT1, "one"], [AT2, "two"]]
    again = [query["since"] for _, path, query in docker.asked if path.endswith("/logs")]
    assert again == ["0", "1796040002.000000000"]


def test_without_follow_it_reads_once(docker: ContainerDaemon) -> None:
    docker.answers["/containers/sgl/json"] = (200, inspected())
    docker.answers["/containers/sgl/logs"] = (200, frame(f"{T1} one\n"))
    ran = run("engine_logs", followed(docker, follow=False, tail=0))
    assert ran.result["status"] == "running"
    query = next(query for _, path, query in docker.asked if path.endswith("/logs"))
    assert (query["follow"], query["tail"]) == ("0", "0")


def test_no_container_is_an_answer(docker: ContainerDaemon) -> None:
    assert run("engine_logs", followed(docker)).result == {"status": "absent"}


def test_a_log_driver_that_keeps_nothing_is_explained(docker: ContainerDaemon) -> None:
    docker.answers["/containers/sgl/json"] = (200, inspected())
    docker.answers["/containers/sgl/logs"] = (501, {"message": "configured logging driver does not support reading"})
    error = run("engine_logs", followed(docker)).error
    assert error["why"] == "configured logging driver does not support reading"
    assert "json-file" in error["fix"]


def test_no_daemon_is_a_refusal(tmp_path: Path) -> None:
    args = {"container": "sgl", "follow": True, "socket": str(tmp_path / "none.sock")}
    assert run("engine_logs", args).error["what"] == "the Docker daemon does not answer"


def test_a_reader_that_leaves_ends_the_program(docker: ContainerDaemon) -> None:
    docker.hold = threading.Event()
    docker.answers["/containers/sgl/json"] = (200, inspected())
    docker.answers["/containers/sgl/logs"] = (200, frame(f"{T1} one\n"))
    process = start("engine_logs", followed(docker))
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert until(lambda: process.poll() is not None, "the program ended")
    assert process.stderr is not None
    process.stderr.close()
