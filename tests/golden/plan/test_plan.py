"""Every case file: the phase plans and verifies as it says. Expected values are written by hand, never accepted."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from k3deploy.domain.errors import K3Error
from tests.golden.plan.case import FOLDER, Case, planned, verified

PATHS = sorted(path for path in FOLDER.glob("*/*.json") if path.parent.name != "base")


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", PATHS, ids=_name)
def test_case(path: Path) -> None:
    case = Case.read(path)
    looked_at = [kind for kind in ("plan", "verify") if kind in case.body]
    assert looked_at, "a case says what to expect"
    for kind in looked_at:
        found = planned(case) if kind == "plan" else verified(case)
        assert _only(found, case.body[kind]) == case.body[kind]


@pytest.mark.parametrize("path", PATHS, ids=_name)
def test_verify_asks_no_more_than_its_questions_say(path: Path) -> None:
    """Else a run with nothing to do would cost a second round trip."""
    case = Case.read(path)
    phase, target, svc = case.load()
    announced = phase.questions(svc, target)
    verified_svc = case.load()[2]
    survey: Any = verified_svc.survey
    with contextlib.suppress(K3Error):  # whether it is well is the other test's business
        phase.verify(verified_svc, target)
    asked = set(survey.asked)
    assert asked <= {(node, question) for node, questions in announced.items() for question in questions}


def _only(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Any:
    """The part of what was found that the case speaks of: an error may be told by some of its fields."""
    if set(found) != set(wanted) and not set(wanted) <= set(found):
        return found
    return {
        name: _only(found[name], value) if isinstance(value, dict) and isinstance(found[name], dict) else found[name]
        for name, value in wanted.items()
    }
