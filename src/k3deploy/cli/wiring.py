"""The only place where adapters are built and joined: from a folder and a store to a session over nodes."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from k3deploy.adapters import engines, profiles
from k3deploy.adapters.cancel import EventCancel
from k3deploy.adapters.clock import SystemClock
from k3deploy.adapters.nodes_file import load_nodes, nodes_from_lock, nodes_to_lock
from k3deploy.adapters.store.open import open_store
from k3deploy.adapters.store.overlay import OverlayStore
from k3deploy.cli.console import Console, open_console
from k3deploy.contracts import Services, Store
from k3deploy.domain.errors import ProfileError, StoreError, UsageError
from k3deploy.domain.faults import Fault
from k3deploy.domain.nodes_file import NodesFile
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.run import Keys, RunRecord, new_run_id
from k3deploy.domain.topology import assign
from k3deploy.flows.runs import Runs
from k3deploy.flows.session import Session
from k3deploy.runner.pins import StorePins
from k3deploy.runner.survey import BatchingSurvey

FOLDER = ".k3deploy"


@dataclass(frozen=True)
class Place:
    """Where a command is typed: the nodes file (None when there is none) and the store."""

    nodes_path: Path
    nodes: NodesFile | None
    runs: Runs
    clock: SystemClock

    @property
    def addresses(self) -> list[str] | None:
        return None if self.nodes is None else [entry.address for entry in self.nodes.nodes]

    def choose(self, run_id: str | None) -> RunRecord:
        """The run that is meant: the one named, else the latest on this folder's nodes."""
        return self.runs.get(run_id) if run_id else self.runs.latest(self.addresses)

    def need_nodes(self) -> NodesFile:
        if self.nodes is None:
            raise ProfileError(
                what=f"there is no {self.nodes_path}",
                why="it names the machines and how to reach them",
                fix="write it with `k3deploy init ADDRESS ADDRESS ...`, or name one with --nodes PATH",
            )
        return self.nodes


def open_place(nodes_path: Path, store_url: str | None) -> Place:
    """Read the nodes file, if there is one, and open the store. No node is contacted."""
    nodes = load_nodes(nodes_path) if nodes_path.exists() else None
    store = open_store(store_url or str(nodes_path.resolve().parent / FOLDER))
    return Place(nodes_path, nodes, Runs(store), SystemClock())


@dataclass(frozen=True)
class Begun:
    """The run that `up` works on. `is_new` runs are not in the store yet: a dry run leaves none behind."""

    record: RunRecord
    profile: Profile
    nodes: NodesFile
    is_new: bool
    warnings: tuple[Fault, ...] = ()  # what the profile's rules would have somebody know


def begin(place: Place, profile_ref: str, run_id: str | None) -> Begun:
    """Find the live run of this profile on these machines, or make the record of a new one.

    Raises UsageError when the machines belong to a live run of another profile.
    """
    loaded, nodes = profiles.load(profile_ref), place.need_nodes()
    profile = loaded.profile
    assign(profile, nodes, str(place.nodes_path))  # what does not fit together is said before anything else
    if run_id is not None:
        record = place.runs.get(run_id)
        if not record.is_live:
            raise UsageError(what=f"run {run_id} is torn down", fix="leave --run-id out: `up` then starts a new run")
        if record.profile != profile.name:
            raise UsageError(
                what=f"run {run_id} is not of profile {profile.name}",
                fix=f"k3deploy up --profile {record.profile} --run-id {run_id}",
                context={"found": record.profile, "wanted": profile.name},
            )
        return _resumed(record, profile, nodes)
    live = [record for record in place.runs.of(place.addresses) if record.is_live]
    others = [record for record in live if record.profile != profile.name]
    if others:
        raise UsageError(
            what=f"these machines belong to run {others[0].run_id}",
            why=f"it runs profile {others[0].profile}; two profiles on the same GPUs would fight",
            fix=f"k3deploy teardown --run-id {others[0].run_id} --confirm",
            context={"wanted": profile.name, "found": others[0].profile},
        )
    if live:
        return _resumed(live[0], profile, nodes)
    now = place.clock.now()
    record = RunRecord(
        run_id=new_run_id(profile.name, now, secrets.token_hex(2)),
        profile=profile.name,
        addresses={entry.name: entry.address for entry in nodes.nodes},
        created_at=now,
        usd_per_hour=profile.usd_per_hour,
    )
    return Begun(record, profile, nodes, is_new=True, warnings=loaded.warnings)


def _resumed(record: RunRecord, profile: Profile, nodes: NodesFile) -> Begun:
    """The same nodes by name; an address may have changed. A node that is gone from the file would bill unseen."""
    addresses = {entry.name: entry.address for entry in nodes.nodes}
    if addresses.keys() != record.addresses.keys():
        gone, new = record.addresses.keys() - addresses.keys(), addresses.keys() - record.addresses.keys()
        raise UsageError(
            what=f"run {record.run_id} has other nodes than the nodes file",
            why="a node that leaves the file keeps its engine and its bill, and nobody would look after it",
            fix="put the same nodes into the file, or end the run: "
            f"k3deploy teardown --run-id {record.run_id} --confirm",
            context={"gone from the file": ", ".join(sorted(gone)), "new in the file": ", ".join(sorted(new))},
        )
    return Begun(replace(record, addresses=addresses), profile, nodes, is_new=False)


def save(place: Place, begun: Begun) -> Begun:
    """Put the run and its lock into the store, after proving that the store keeps its promises."""
    from k3deploy.adapters.store.prove import prove

    prove(place.runs.store)
    lock = _lock(place.runs.store, begun)
    if begun.is_new:
        place.runs.create(begun.record, profile_lock=lock, nodes_lock=nodes_to_lock(begun.nodes))
    else:
        place.runs.update(begun.record, profile_lock=lock, nodes_lock=nodes_to_lock(begun.nodes))
    return replace(begun, is_new=False)


def _lock(store: Store, begun: Begun) -> str:
    """The resolved profile, with the image digest that the run settled: itself a valid profile."""
    pinned = StorePins(store, Keys(begun.record.run_id)).get("image")
    digest = begun.profile.engine.digest or (pinned["digest"] if pinned else None)
    engine = begun.profile.engine.model_copy(update={"digest": digest})
    return profiles.profile_to_lock(begun.profile.model_copy(update={"engine": engine}))


def locked(place: Place, record: RunRecord) -> Begun:
    """A run as its lock describes it, for commands that take no profile."""
    keys, store = Keys(record.run_id), place.runs.store
    profile, nodes = store.get(keys.profile_lock), store.get(keys.nodes_lock)
    if profile is None or nodes is None:
        raise StoreError(
            what=f"the lock of run {record.run_id} is missing in {store.describe()}",
            fix="run `k3deploy up --profile NAME` again: it writes the lock anew",
        )
    # The folder's own nodes file wins where it names the same nodes: addresses and host keys may have changed there.
    names = {entry.name for entry in place.nodes.nodes} if place.nodes else set()
    current = place.nodes if names == set(record.addresses) and record.shares_machines(place.addresses or ()) else None
    lock = profiles.profile_from_lock(profile.data.decode())
    return Begun(record, lock, current or nodes_from_lock(nodes.data), is_new=False)


@dataclass(frozen=True)
class Opened:
    session: Session
    console: Console
    cancel: EventCancel


@contextmanager
def open_session(
    begun: Begun, place: Place, *, wheelhouse: Path | None = None, is_dry: bool = False
) -> Iterator[Opened]:
    """Services over the run's nodes; connections are made at first use and closed at the end."""
    from k3deploy.adapters.http import NodeHttp
    from k3deploy.adapters.hub.client import HuggingFace
    from k3deploy.adapters.mirror import open_mirror
    from k3deploy.adapters.ssh.pool import SshNodes
    from k3deploy.adapters.wheelhouse import Wheelhouse

    store: Store = OverlayStore(place.runs.store) if is_dry else place.runs.store
    nodes = SshNodes(begun.nodes, begun.profile.timeouts.connect_s)
    survey = BatchingSurvey(nodes)
    cancel = EventCancel()
    console = open_console()
    svc = Services(
        nodes=nodes,
        survey=survey,
        store=store,
        pins=StorePins(store, Keys(begun.record.run_id)),
        hub=HuggingFace(),
        http=NodeHttp(nodes),
        clock=place.clock,
        cancel=cancel,
        mirror=open_mirror(begun.profile.weights.mirror),
    )
    session = Session(
        record=begun.record,
        profile=begun.profile,
        nodes_file=begun.nodes,
        topology=assign(begun.profile, begun.nodes),
        svc=svc,
        survey=survey,
        sink=console,
        option_lists=engines.option_lists(begun.profile.engine.name),
        wheelhouse=Wheelhouse(wheelhouse),
    )
    try:
        yield Opened(session, console, cancel)
    finally:
        console.close()
        nodes.close()
