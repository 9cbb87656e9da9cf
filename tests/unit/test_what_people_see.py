"""What scrolls by while a run is under way, and how a dry run's plan is put."""

import io
from pathlib import Path

import pytest

from k3deploy.cli.console import LiveConsole, PlainConsole
from k3deploy.cli.plan import plan_as_dict, plan_lines
from k3deploy.domain import events as ev
from k3deploy.domain.names import RunId
from k3deploy.domain.run import RunRecord
from k3deploy.domain.run_state import fold
from k3deploy.domain.status import Status
from tests.cli_run import k3deploy

NODES = ("gpu-01", "gpu-02")
LATER = "known once what it needs is done"


def _started() -> ev.RunStarted:
    return ev.RunStarted(at=100.0, run_id="r", flow="up", profile="h100x32", nodes=NODES, usd_per_hour=64.0)


def _dry(phase: str, target: str, *steps: str, reason: str = "", detail: str = "") -> ev.Planned:
    details = tuple(detail for _ in steps)
    return ev.Planned(at=101.0, phase=phase, target=target, steps=steps, details=details, reason=reason, is_dry=True)


def test_a_plan_says_the_same_words_once_and_keeps_the_order_of_the_phases() -> None:
    state = fold(
        [
            _started(),
            _dry("facts", "gpu-02", reason="10.0.0.12 on ens6"),
            _dry("facts", "gpu-01", reason="10.0.0.11 on ens6"),
            _dry("storage", "gpu-02", "make /nvme/hf", detail="one\ntwo"),
            _dry("image", "gpu-02", reason=LATER),
            _dry("storage", "gpu-01", "make /nvme/hf", detail="one\ntwo"),
            _dry("image", "gpu-01", reason=LATER),
            _dry("client", "gpu-01", reason=LATER),
            _dry("client", "gpu-02", reason=LATER),
            _dry("launch", "serve-0", reason=LATER),
        ]
    )
    assert plan_lines(state) == [
        "= facts           gpu-01   10.0.0.11 on ens6",
        "= facts           gpu-02   10.0.0.12 on ens6",
        "+ storage         all 2    make /nvme/hf",
        "                           one",
        "                           two",
        f"= image, client   all 2    {LATER}",
        f"= launch          serve-0  {LATER}",
    ]


def test_a_plan_for_programs_holds_every_target() -> None:
    state = fold([_started(), _dry("storage", "gpu-01", "make /nvme/hf", detail="why")])
    assert plan_as_dict(state) == [
        {"phase": "storage", "target": "gpu-01", "steps": [{"title": "make /nvme/hf", "detail": "why"}], "reason": ""}
    ]


def test_a_log_has_a_line_for_every_step_and_every_end() -> None:
    lines: list[str] = []
    console = PlainConsole(lines.append)
    for event in _one_step():
        console.emit(event)
    assert lines == [
        "00:00  run        up              profile h100x32 on 2 nodes, $64.00/h",
        "00:02  gpu-01     storage         make /nvme/hf ...",
        "00:05  gpu-01     storage         ok: cache at /nvme/hf (3.0 s)",
    ]


def test_a_terminal_keeps_only_what_is_done() -> None:
    stream = io.StringIO()
    console = LiveConsole(stream)
    for event in _one_step():
        console.emit(event)
    console.close()
    kept = [line.rstrip() for line in stream.getvalue().splitlines() if "gpu-01" in line]
    assert kept == ["00:05  gpu-01     storage         ok: cache at /nvme/hf (3.0 s)"]


def _one_step() -> list[ev.Event]:
    where = {"phase": "storage", "target": "gpu-01"}
    return [
        _started(),
        ev.PhaseStarted(at=101.0, title="Put Docker's data on the NVMe disk", **where),
        ev.StepStarted(at=102.0, step="make /nvme/hf", **where),
        ev.StepFinished(at=105.0, step="make /nvme/hf", duration_s=3.0, **where),
        ev.Verified(at=105.0, summary="cache at /nvme/hf", has_changed=True, duration_s=3.0, evidence={}, **where),
    ]


@pytest.mark.parametrize("words", [(), ("profiles",), ("runs",)])
def test_a_group_typed_alone_shows_its_help_and_says_that_nothing_was_asked(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    said = k3deploy(words, tmp_path)
    assert (said.exit_code, said.stdout) == (2, "")
    assert said.stderr.startswith(f"Usage: {' '.join(('k3deploy', *words))} ")


def test_a_status_lists_failures_one_by_one_and_those_that_wait_together() -> None:
    failure = {"what": "gpu-01: its host key is not known"}
    blocked = [
        ev.TargetBlocked(at=103.0, phase="facts", target=node, reason=f"waits for connect on {node}") for node in NODES
    ]
    state = fold(
        [_started(), ev.TargetFailed(at=102.0, phase="connect", target="gpu-01", error=failure, duration_s=0), *blocked]
    )
    record = RunRecord(run_id=RunId("r"), profile="h100x32", addresses={}, created_at=100.0, usd_per_hour=None)
    assert [(count.phase, count.notes) for count in Status(record, state, now=110.0).phases] == [
        ("connect", ("gpu-01 failed: gpu-01: its host key is not known",)),
        ("facts", ("gpu-01, gpu-02 not started: waits for connect on gpu-01, ...",)),
    ]
