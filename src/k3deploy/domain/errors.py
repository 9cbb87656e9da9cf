"""Every error a user can meet, by who must act. Shown once, at the CLI's boundary, as what / why / fix.

K3Error
  ProfileError       your profile, nodes file or arguments
  UsageError         the command line itself
  NodeError          one machine: unreachable, auth, disk, docker
  HubError           Hugging Face: access, revision, rate
  PackageIndexError  the package index that the operator's pip uses
  StoreError         the run's store
  OutputError        where stdout leads
  EngineError        the engine refused, died or hung
  PhaseFailed        one or more targets of a run failed
  NotConfirmed       nothing done: --confirm is missing
  Bug                ours
  Interrupted        Ctrl-C
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The table of exit codes: one meaning each, for scripts."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> "ExitCode":
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    DONE = 0, "done, or nothing was to be done"
    INPUT = 1, "your input cannot be right: profile, nodes file, arguments' values"
    USAGE = 2, "the command line does not say what to do"
    FAILED = 3, "a node, a phase, the hub or the store failed"
    UNHEALTHY = 4, "looked, and it is not healthy"
    NOT_CONFIRMED = 5, "nothing done, because --confirm is missing"
    BUG = 70, "a mistake in k3deploy"
    INTERRUPTED = 130, "interrupted by Ctrl-C"


class K3Error(Exception):
    """What happened, why, and what to type next.

    `context` holds the facts behind it (node, found, wanted, path, log): shown in this order, and the
    same fields appear in `--output json`.
    """

    code: ClassVar[str] = "K3-000"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    transient: ClassVar[bool] = False

    def __init__(self, *, what: str, why: str = "", fix: str, context: Mapping[str, object] | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.context: dict[str, object] = dict(context or {})

    def as_dict(self) -> dict[str, object]:
        """The documented JSON shape of an error."""
        return {
            "code": self.code,
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
            "context": self.context,
        }


class ProfileError(K3Error):
    """A profile, nodes file or argument that cannot be right. Found before anything is touched."""

    code = "K3-PROFILE-001"
    exit_code = ExitCode.INPUT


class ProfileFaults(ProfileError):
    """Several faults of one profile or nodes file: each one is kept, so that one look is enough to correct them all."""

    code = "K3-PROFILE-002"

    def __init__(self, *, failures: Sequence[K3Error], what: str, why: str = "", fix: str) -> None:
        super().__init__(what=what, why=why, fix=fix)
        self.failures = tuple(failures)

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "failures": [failure.as_dict() for failure in self.failures]}


class UsageError(K3Error):
    """A command line that does not say what to do."""

    code = "K3-USAGE-001"
    exit_code = ExitCode.USAGE


class NodeError(K3Error):
    """One machine cannot do what the run needs."""

    code = "K3-NODE-001"


class NodeUnreachable(NodeError):
    """No SSH session: refused, timed out, no route, or the link broke."""

    code = "K3-NODE-002"
    transient = True


class HostKeyError(NodeError):
    """The host key is unknown, or not the pinned one. SSH cannot tell a rebuilt machine from an attack."""

    code = "K3-NODE-003"


class AuthError(NodeError):
    """SSH or sudo turned us away."""

    code = "K3-NODE-004"


class NodeTimeout(NodeError):
    """Something on the node did not finish within its deadline."""

    code = "K3-NODE-005"
    transient = True


class ProgramFailed(NodeError):
    """A program of ours on the node stopped with an explanation."""

    code = "K3-NODE-006"


class HubError(K3Error):
    """Hugging Face: no access, no such revision, rate limit, not reachable."""

    code = "K3-HUB-001"


class PackageIndexError(K3Error):
    """The index that the operator's pip uses cannot be reached, or has not what the node client's lock names."""

    code = "K3-INDEX-001"


class StoreError(K3Error):
    """The run's store cannot be read or written, or does not keep its promises."""

    code = "K3-STORE-001"


class StoreConflict(StoreError):
    """Somebody else wrote first: a conditional write did not take place."""

    code = "K3-STORE-002"


class StoreUnreachable(StoreError):
    """The store's server did not answer. What needs it is tried again; work on the nodes goes on meanwhile."""

    code = "K3-STORE-003"
    transient = True


class OutputError(K3Error):
    """The result could not be written where stdout leads, such as a full disk."""

    code = "K3-OUTPUT-001"


class EngineError(K3Error):
    """The engine refused its launch, died, hung, or answers wrongly."""

    code = "K3-ENGINE-001"


class NotConfirmed(K3Error):
    """Nothing was done, because `--confirm` is missing."""

    code = "K3-CONFIRM-001"
    exit_code = ExitCode.NOT_CONFIRMED


class PhaseFailed(K3Error):
    """One or more (phase, target) pairs failed; every failure is kept."""

    code = "K3-RUN-001"

    def __init__(self, *, failures: Sequence[K3Error], what: str, why: str = "", fix: str) -> None:
        super().__init__(what=what, why=why, fix=fix)
        self.failures = tuple(failures)

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "failures": [failure.as_dict() for failure in self.failures]}


class Bug(K3Error):
    """A mistake in k3deploy."""

    code = "K3-BUG-001"
    exit_code = ExitCode.BUG

    @staticmethod
    def of(error: BaseException) -> "Bug":
        """Wrap what should not have happened; the trace stays reachable as `__cause__`."""
        bug = Bug(
            what=f"k3deploy made a mistake: {type(error).__name__}: {error}",
            why="this is a fault in k3deploy, not in what you typed",
            fix="run again with K3DEPLOY_DEBUG=1 to see the trace, and report it; the run's state is safe",
        )
        bug.__cause__ = error
        return bug


class Interrupted(K3Error):
    """Ctrl-C."""

    code = "K3-RUN-002"
    exit_code = ExitCode.INTERRUPTED
