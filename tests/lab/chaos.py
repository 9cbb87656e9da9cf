"""Kill `up` in each phase, every time from bare nodes, and see that the next `up` ends in the same state.

`scripts/test` tells the chained story (kill, resume, next phase); this takes each phase alone. About a minute a phase.
"""

import shutil
import sys

from tests.lab import operator_files
from tests.lab.lab import Lab
from tests.lab.operator import Operator, steps_after_success
from tests.lab.test_main_job import PHASES_WITH_STEPS, UP

NAME = "chaos"


def make_bare(lab: Lab) -> None:
    """New machines behind the same addresses, as after a preemption, and an operator who never ran anything."""
    for node in lab.nodes:
        node.fault("preempt")
    entries = (node.entry() for node in lab.nodes)
    lab.folder.nodes_yaml.write_text(operator_files.nodes_yaml(entries))
    shutil.rmtree(lab.folder.work / ".k3deploy", ignore_errors=True)


def try_phase(lab: Lab, phase: str) -> str:
    """Empty when all is well, else what is wrong."""
    operator = Operator(lab)
    make_bare(lab)
    operator.killed_in(phase, *UP)
    said = operator.k3deploy(*UP, "--output", "json")
    if said.code != 0:
        return f"the next up failed:\n{said}"
    if not said.json["answers"]["serve-0"]["answer"]:
        return "no answer"
    again = steps_after_success(operator.events())
    if again:
        return f"done twice: {again}"
    idle = operator.k3deploy(*UP, "--output", "json")
    return "" if idle.code == 0 and not idle.json["has_changed"] else f"not at rest afterwards:\n{idle}"


def main() -> int:
    wanted = sys.argv[1:] or list(PHASES_WITH_STEPS)
    lab = Lab.up(NAME, profile="lab-h100x32", nodes=4)
    failed = []
    try:
        for phase in wanted:
            wrong = try_phase(lab, phase)
            print(f"{phase:<16} {wrong or 'ok'}", flush=True)
            failed += [phase] if wrong else []
    finally:
        lab.down()
    print(f"{len(wanted) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
