"""What a look at a node found wrong: errors stop it, warnings are said and kept. All of them, not the first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.domain.errors import K3Error, NodeError, PhaseFailed
from k3deploy.domain.names import NodeName
from k3deploy.domain.steps import Verdict


@dataclass(frozen=True)
class Finding:
    """One fact that is not as it should be. `what` goes without the node's name, which is added where it is shown."""

    what: str
    fix: str
    why: str = ""
    found: str = ""
    wanted: str = ""
    is_warning: bool = False
    error: type[K3Error] = NodeError

    def as_error(self, node: NodeName) -> K3Error:
        context = {"node": node, "found": self.found, "wanted": self.wanted}
        return self.error(
            what=f"{node}: {self.what}",
            why=self.why,
            fix=self.fix,
            context={name: value for name, value in context.items() if value},
        )

    @property
    def line(self) -> str:
        """A warning on one line."""
        return f"{self.what}; {self.fix}"


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(each for each in findings if not each.is_warning)


def raise_errors(node: NodeName, findings: Sequence[Finding]) -> None:
    """Raise the error there is, or PhaseFailed with all of them; warnings alone raise nothing."""
    errors = [each.as_error(node) for each in errors_of(findings)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise PhaseFailed(
            failures=errors,
            what=f"{node}: {len(errors)} things are in the way",
            fix="put them right and run the same command again",
        )


def verdict(summary: str, findings: Sequence[Finding], **evidence: Any) -> Verdict:
    """A good verdict that carries the warnings, or a bad one that names every error."""
    errors = errors_of(findings)
    if not errors:
        warnings = [each.line for each in findings]
        return Verdict.ok(summary, **evidence, **({"warnings": warnings} if warnings else {}))
    facts = {
        name: "; ".join(value for value in values if value)
        for name, values in (("found", [e.found for e in errors]), ("wanted", [e.wanted for e in errors]))
    }
    return Verdict.bad(
        "; ".join(each.what for each in errors),
        why="; ".join(each.why for each in errors if each.why),
        fix="; ".join(each.fix for each in errors),
        **{name: value for name, value in facts.items() if value},
    )
