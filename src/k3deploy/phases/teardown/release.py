"""Release: the profile's own command on each node, at the very end, and its result read back from the store.

What it does is the profile's affair (hand a machine back, tell a scheduler), so its exit code and the words that the
profile expects are all that can be judged. The command may end the machine: nothing is asked of the node after it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Command, Question
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.profile.models import Release
from k3deploy.domain.run import Keys
from k3deploy.domain.secret_text import without_secrets
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.teardown.site import TeardownSite

_KEPT_CHARACTERS = 4000


@dataclass(frozen=True)
class RunRelease:
    node: NodeName
    release: Release
    key: str

    def perform(self, svc: Services, progress: Progress) -> None:
        done = svc.nodes[self.node].run(Command(self.release.argv, timeout_s=self.release.timeout_s))
        body = {
            "argv": list(self.release.argv),
            "exit_code": done.exit_code,
            "stdout": _shown(done.stdout),
            "stderr": _shown(done.stderr),
            "has_expected": self.release.expect_stdout in done.stdout,
            "at": svc.clock.now(),
        }
        svc.store.put(self.key, json.dumps(body, sort_keys=True).encode())


def _shown(text: str) -> str:
    """The end of it. Secrets go first: one that is cut in two is no longer known by its form."""
    return without_secrets(text)[-_KEPT_CHARACTERS:]


@dataclass(frozen=True)
class ReleasePhase:
    site: TeardownSite
    release: Release

    @property
    def name(self) -> PhaseName:
        return PhaseName("release")

    @property
    def title(self) -> str:
        return "Run the profile's release command"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        purge = ("weights-purge",) if self.site.options.purges_weights else ()
        return tuple(PhaseName(name) for name in ("prove-free", *purge))

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return {}

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return digest_of(run=str(self.site.run), argv=list(self.release.argv), expect=self.release.expect_stdout)

    def probe(self, svc: Services, target: Target) -> Mapping[str, Any] | None:
        stored = svc.store.get(self._key(target))
        return None if stored is None else dict(json.loads(stored.data))

    def plan(self, target: Target, seen: Mapping[str, Any] | None) -> Plan:
        if seen is not None and not self._wrong(seen):
            return Plan.noop("it was run, and said what the profile expects")
        shown = " ".join(self.release.argv)
        return Plan.of(Step(f"run {shown}", RunRelease(target.nodes[0], self.release, self._key(target))))

    def verify(self, svc: Services, target: Target) -> Verdict:
        result = self.probe(svc, target)
        if result is None:
            return Verdict.bad("it was not run", fix="run the same command again")
        wrong = self._wrong(result)
        if wrong:
            return Verdict.bad(
                wrong,
                why=(result["stderr"] or result["stdout"]).strip(),
                fix="run the command on the node by hand, or correct `release` in the profile; then the same command",
                found=f"exit code {result['exit_code']}",
                wanted=f"exit code 0 and {self.release.expect_stdout!r} in its output",
            )
        return Verdict.ok("released", stdout=result["stdout"].strip())

    def _wrong(self, result: Mapping[str, Any]) -> str:
        if result["argv"] != list(self.release.argv):
            return "another command was run before"
        if result["exit_code"] != 0:
            return f"it ended with exit code {result['exit_code']}"
        return "" if result["has_expected"] else f"its output lacks {self.release.expect_stdout!r}"

    def _key(self, target: Target) -> str:
        return Keys(self.site.run).artifact(f"release/{target.name}.json")
