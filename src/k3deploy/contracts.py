"""What the phases and the runner need from the world, as Protocols. Adapters implement them; `testing/` fakes them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from k3deploy.domain.client_lock import ClientLock
from k3deploy.domain.command import Command, CommandResult, Program, Question, Secret
from k3deploy.domain.events import Event
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName, Sha256
from k3deploy.domain.steps import Plan, Target, Verdict
from k3deploy.domain.supply import Supply
from k3deploy.domain.weights import Manifest


class Node(Protocol):
    """One machine, reached over one kept-alive connection. Methods may be called from several threads.

    Every method raises NodeUnreachable, HostKeyError or AuthError when there is no session,
    and NodeTimeout when the deadline passes.
    """

    @property
    def name(self) -> NodeName: ...

    def run(self, command: Command) -> CommandResult:
        """Run and wait. A non-zero exit is returned, not raised."""
        ...

    def call(self, program: Program) -> Mapping[str, Any]:
        """Run a program of ours and return its result. Raises ProgramFailed with the program's own words."""
        ...

    def follow(self, program: Program) -> Iterator[Mapping[str, Any]]:
        """Run a program of ours; yield each line as it comes: `{"progress": ...}` any number of times, then one
        `{"result": ...}`. Raises ProgramFailed like `call`. It starts when the first line is asked for; leaving the
        loop early ends its session.
        """
        ...

    def put(self, source: bytes | Path, path: str, *, mode: int = 0o644) -> None:
        """Write a file on the node as the login user: temporary name, then rename. Parents must exist."""
        ...

    def dial(self, host: str, port: int, *, timeout_s: float) -> Any:
        """A socket-like object (recv, sendall, settimeout, close) connected from the node to host:port.

        Raises ConnectionRefusedError or TimeoutError for what is beyond the node, as a socket would.
        """
        ...

    def close(self) -> None: ...


class Nodes(Protocol):
    """The nodes of this run. `[name]` connects at first use; the connection is then shared."""

    def __getitem__(self, name: NodeName) -> Node: ...

    def close(self) -> None: ...


class Survey(Protocol):
    """Answers about a node, read in one round trip and kept until something was changed there."""

    def ask(self, node: NodeName, question: Question) -> Mapping[str, Any]: ...

    def forget(self, nodes: Sequence[NodeName]) -> None: ...


@dataclass(frozen=True)
class Stored:
    """A stored object and the tag that a conditional write must name.

    On S3 the tag follows the content: what is changed and changed back has its old tag. Objects for which that
    matters carry a counter.
    """

    data: bytes
    tag: str


class Store(Protocol):
    """Saved progress: small objects under slash-separated keys. Raises StoreError; conflicts are StoreConflict."""

    def get(self, key: str) -> Stored | None: ...

    def put(self, key: str, data: bytes) -> str:
        """Write unconditionally; returns the new tag. For artifacts that only one writer ever names."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Create, or raise StoreConflict when the key exists. Atomic."""
        ...

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        """Replace, or raise StoreConflict when the object is gone or its tag is another. Atomic."""
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """All keys that start with the prefix, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Remove; absent is not an error."""
        ...

    def describe(self) -> str:
        """Where it is, for people: `s3://bucket/prefix` or a folder."""
        ...


class Hub(Protocol):
    """The model hub as the operator's machine sees it. Raises HubError."""

    def manifest(self, repo: str, revision: str) -> Manifest:
        """Every file of the repository at a revision, with sizes and digests: one call."""
        ...

    def node_environment(self) -> Mapping[str, str]:
        """Non-secret client settings that nodes need too (HF_ENDPOINT when the operator set one)."""
        ...

    def token(self) -> Secret | None:
        """The operator's token, where there is one. Never logged, never stored."""
        ...


class Mirror(Protocol):
    """Where nodes get the weights from instead of the Hub. Raises HubError."""

    def supply(self, manifest: Manifest) -> Supply:
        """What a node needs to fetch a repository's files from there."""
        ...


@dataclass(frozen=True)
class ClientPack:
    """A zip file of wheels, and the hash of each, all of them in the lock."""

    path: Path
    wheels: Mapping[str, Sha256]


class Wheelhouse(Protocol):
    """The Hub client for nodes, as wheels fixed by a lock. Raises PackageIndexError and ProfileError."""

    @property
    def lock(self) -> ClientLock: ...

    def pack(self, architecture: str) -> ClientPack:
        """The wheels for an architecture (x86_64, aarch64), checked. Fetched at first use, then kept."""
        ...


@dataclass(frozen=True)
class HttpResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Http(Protocol):
    """HTTP to an engine. `via` names the node whose network is used, as the API may bind to a private address."""

    def request(
        self,
        method: str,
        url: str,
        *,
        via: NodeName,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float,
    ) -> HttpResponse: ...


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, for records."""
        ...

    def monotonic(self) -> float:
        """Seconds, for deadlines."""
        ...

    def sleep(self, seconds: float) -> None: ...


class EventSink(Protocol):
    def emit(self, event: Event) -> None: ...


class Cancel(Protocol):
    """Set by the first Ctrl-C: finish the step in hand, start nothing after it."""

    @property
    def is_set(self) -> bool: ...

    def wait(self, timeout_s: float) -> bool: ...


class Progress(Protocol):
    """How a long action tells what it is doing: a line for people and, where they exist, numbers.

    `done` of `total` is what its bar shows; `numbers` are further ones by name, units in the names (`hub_bps`).
    """

    def __call__(
        self,
        message: str,
        *,
        done: float | None = None,
        total: float | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> None: ...


class Pins(Protocol):
    """Facts that are settled once per run and then required everywhere (image digest, manifest).

    The first writer wins, by the store's conditional write; everybody else gets the winner's value.
    """

    def get(self, name: str) -> Mapping[str, Any] | None: ...

    def settle(self, name: str, value: Mapping[str, Any]) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Services:
    """All that a phase may touch."""

    nodes: Nodes
    survey: Survey
    store: Store
    pins: Pins
    hub: Hub
    http: Http
    clock: Clock
    cancel: Cancel
    mirror: Mirror | None = None


class Action(Protocol):
    """What a Step does when the runner performs it. A frozen dataclass, so that plans compare equal in tests."""

    def perform(self, svc: Services, progress: Progress) -> None: ...


Seen = TypeVar("Seen")


class Phase(Protocol[Seen]):
    """One resumable piece of a flow. Order, retries, dry run, markers and events are the runner's business.

    A unit is (phase, target). It starts when every unit of every phase named in `needs`, whose target shares
    a node with it, is done: so a replica launches when its own nodes are ready, with no global barrier.
    """

    @property
    def name(self) -> PhaseName: ...

    @property
    def title(self) -> str: ...

    @property
    def needs(self) -> tuple[PhaseName, ...]: ...

    def targets(self) -> Sequence[Target]: ...

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        """What `verify` will ask the nodes, so that a run with nothing to do costs one round trip per node."""
        ...

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        """Digest of all that would make an old result worthless, node identity included."""
        ...

    def probe(self, svc: Services, target: Target) -> Seen:
        """Read only."""
        ...

    def plan(self, target: Target, seen: Seen) -> Plan:
        """Pure: what is still to be done."""
        ...

    def verify(self, svc: Services, target: Target) -> Verdict:
        """Read only; believes nothing that `apply` said."""
        ...
