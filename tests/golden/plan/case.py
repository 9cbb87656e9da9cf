"""A saved look at some nodes in, a phase's plan or verdict out. Every case is one JSON file:

about       what it shows, with the field failure it comes from
profile     name of a shipped profile (h100x32), `set`: settings as on the command line, `nodes`: entries' extra keys
base        file in base/ with one node's answers by section; `change` is laid over it for every node,
            `change_node` for one node by name. An object is merged, anything else replaces.
            `daemon_json` in the storage section may be the file's text.
pins        what the run settled before; `programs`: answers of read-only programs by entry
records     what is in the store, by key below the run's folder; `now`: the operator's clock (1800000000)
plan        {"steps", "details"?} | {"noop"} | {"error": {"what", ...}} | {"errors": [what, ...]}
verify      {"summary"?, "warnings"?} | {"bad": summary} | {"error": ...}
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3deploy.adapters.engines import option_lists
from k3deploy.adapters.profiles import load_profile
from k3deploy.contracts import Services
from k3deploy.domain.errors import K3Error, PhaseFailed
from k3deploy.domain.names import RunId
from k3deploy.domain.nodes_file import NodeEntry, NodesFile
from k3deploy.domain.run import Keys
from k3deploy.domain.steps import Plan, Target
from k3deploy.domain.topology import assign
from k3deploy.phases.connect import ConnectPhase
from k3deploy.phases.engine_site import EngineSite
from k3deploy.phases.facts import FactsPhase
from k3deploy.phases.gpus import GpusPhase
from k3deploy.phases.image import ImagePhase
from k3deploy.phases.launch import LaunchPhase
from k3deploy.phases.node_site import NodeSite
from k3deploy.phases.preflight import PreflightPhase
from k3deploy.phases.reach import ReachPhase
from k3deploy.phases.storage import StoragePhase
from k3deploy.runner.graph import AnyPhase
from k3deploy.testing import FakeClock, FakeNodes, FakeSurvey, MemoryPins, MemoryStore, services

FOLDER = Path(__file__).parent
RUN = RunId("h100x32-20260728-074500-0a1b")
NOW = 1_800_000_000.0


@dataclass(frozen=True)
class Case:
    path: Path
    body: Mapping[str, Any]

    @staticmethod
    def read(path: Path) -> "Case":
        return Case(path, json.loads(path.read_text("utf-8")))

    @property
    def phase_name(self) -> str:
        return self.path.parent.name

    def load(self) -> tuple[AnyPhase, Target, Services]:
        """The phase, its first target, and services that answer as the case says."""
        profile = load_profile(self.body.get("profile", "h100x32"), self.body.get("set", ()))
        names = [f"gpu-{number:02d}" for number in range(1, profile.node_count + 1)]
        extra = self.body.get("nodes", {})
        nodes = NodesFile(nodes=tuple(NodeEntry(name=name, address=name, **extra.get(name, {})) for name in names))
        topology = assign(profile, nodes)
        node_site = NodeSite(profile, topology, nodes, RUN)
        engine_site = EngineSite(profile, topology, nodes, RUN)
        phases: dict[str, AnyPhase] = {
            "connect": ConnectPhase(node_site),
            "facts": FactsPhase(node_site),
            "preflight": PreflightPhase(node_site),
            "gpus": GpusPhase(engine_site),
            "reach": ReachPhase(node_site),
            "storage": StoragePhase(node_site),
            "image": ImagePhase(node_site, option_lists(profile.engine.name)),
            "launch": LaunchPhase(engine_site),
        }
        phase = phases[self.phase_name]
        return phase, phase.targets()[0], self._services(names)

    def _services(self, names: list[str]) -> Services:
        survey, store, nodes = FakeSurvey(), MemoryStore(), FakeNodes(*names)
        for index, name in enumerate(names):
            for section, answer in self._answers(name, index).items():
                survey.on(section, answer, node=name)
            for entry, result in self.body.get("programs", {}).items():
                nodes[name].on_program(entry, result)
        for key, record in self.body.get("records", {}).items():
            store.put(Keys(RUN).artifact(key), json.dumps(record).encode())
        pins = MemoryPins(**self.body.get("pins", {}))
        clock = FakeClock(now=self.body.get("now", NOW))
        return services(survey=survey, store=store, nodes=nodes, pins=pins, clock=clock)

    def _answers(self, name: str, index: int) -> dict[str, Any]:
        base = json.loads((FOLDER / "base" / f"{self.body.get('base', 'h100')}.json").read_text("utf-8"))
        text = json.dumps(base)
        # Siblings differ as machines do: another address, another identity.
        for wanted in ("10.0.0.219", "f96436826d484daeba53d696dccf958d"):
            text = text.replace(wanted, wanted[:-1] + str(9 - index))
        answers: dict[str, Any] = merged(json.loads(text), self.body.get("change", {}))
        answers = merged(answers, self.body.get("change_node", {}).get(name, {}))
        _encode_daemon_json(answers["storage"])
        return answers


def merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{name: merged(below.get(name), value) for name, value in above.items()}}
    return above


def _encode_daemon_json(storage: dict[str, Any]) -> None:
    text = storage["daemon_json"]
    if isinstance(text, str):
        data = text.encode()
        storage["daemon_json"] = {
            "path": "/etc/docker/daemon.json",
            "text_base64": base64.b64encode(data).decode(),
            "sha256": hashlib.sha256(data).hexdigest(),
        }


def planned(case: Case) -> dict[str, Any]:
    """What the phase would do, in the shape of a case's `plan`."""
    phase, target, svc = case.load()
    try:
        return _plan_dict(phase.plan(target, phase.probe(svc, target)))
    except K3Error as error:
        return error_dict(error)


def verified(case: Case) -> dict[str, Any]:
    """What the phase reads back, in the shape of a case's `verify`."""
    phase, target, svc = case.load()
    try:
        verdict = phase.verify(svc, target)
    except K3Error as error:
        return error_dict(error)
    if not verdict.is_ok:
        return {"bad": verdict.summary}
    return {"summary": verdict.summary, "warnings": list(verdict.evidence.get("warnings", ()))}


def _plan_dict(plan: Plan) -> dict[str, Any]:
    if plan.is_noop:
        return {"noop": plan.reason}
    return {"steps": [step.title for step in plan.steps], "details": [step.detail for step in plan.steps]}


def error_dict(error: K3Error) -> dict[str, Any]:
    if isinstance(error, PhaseFailed):
        return {"errors": [failure.what for failure in error.failures]}
    return {"error": {"what": error.what, "why": error.why, "fix": error.fix, **error.context}}
