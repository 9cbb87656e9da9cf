"""What is done to a replica's containers: stop with rank 0 first, remove and wait until gone, note, start."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from k3deploy.contracts import Progress, Services
from k3deploy.domain.command import Command, Program, Question, Secret
from k3deploy.domain.errors import EngineError, NodeTimeout
from k3deploy.domain.launch.base import Launch
from k3deploy.domain.launch.failures import find_failure
from k3deploy.domain.launch.record import LaunchRecord, NodeSeen
from k3deploy.domain.launch.render import engine_key_file
from k3deploy.domain.names import NodeName, RunId
from k3deploy.domain.run_folder import RunFolder
from k3deploy.phases.on_each import on_each

# `docker run -d` returns when the process has started: seconds, but minutes on a disk that is busy with a pull.
_RUN_TIMEOUT_S = 180.0
# Tearing down GPU memory of 1.5 TB models takes the kernel a while after SIGKILL.
_KILL_GRACE_S = 120.0
_GONE_WITHIN_S = 60.0
# Between "created" and "running" Docker sets up devices and mounts.
_COMES_UP_WITHIN_S = 20.0
_POLL_S = 0.5


@dataclass(frozen=True)
class OurContainer:
    """A container that was shown to be ours, by its id: a name could meanwhile be somebody else's."""

    node: NodeName
    node_rank: int
    id: str

    def stop_command(self, stop_s: float) -> Command:
        return Command(("docker", "stop", "-t", str(int(stop_s)), self.id), sudo=True, timeout_s=stop_s + _KILL_GRACE_S)

    @property
    def remove_command(self) -> Command:
        return Command(("docker", "rm", self.id), sudo=True, timeout_s=_KILL_GRACE_S)


@dataclass(frozen=True)
class StopRanks:
    """Rank 0 first: it tells the others to end. A follower ignores SIGTERM until then, and is killed after `stop_s`.

    A container that is gone or already stopped is no error: the daemon says so, and what counts is read back.
    """

    containers: tuple[OurContainer, ...]
    stop_s: float

    def perform(self, svc: Services, progress: Progress) -> None:
        self._stop(svc, progress, [container for container in self.containers if container.node_rank == 0])
        self._stop(svc, progress, [container for container in self.containers if container.node_rank != 0])

    def _stop(self, svc: Services, progress: Progress, containers: Sequence[OurContainer]) -> None:
        if not containers:
            return
        progress("stopping " + ", ".join(f"{each.node} rank {each.node_rank}" for each in containers))
        commands = {container.node: container.stop_command(self.stop_s) for container in containers}
        on_each(tuple(commands), lambda node: svc.nodes[node].run(commands[node]), doing="stopping the engine")


@dataclass(frozen=True)
class RemoveContainers:
    """Remove stopped containers by id and wait until their name is free, which is a while after the daemon answers."""

    containers: tuple[OurContainer, ...]
    question: Question

    def perform(self, svc: Services, progress: Progress) -> None:
        by_node = {container.node: container for container in self.containers}
        on_each(
            tuple(by_node),
            lambda node: self._remove(svc, node, by_node[node]),
            doing="removing the engine's containers",
        )

    def _remove(self, svc: Services, node: NodeName, container: OurContainer) -> None:
        done = svc.nodes[node].run(container.remove_command)
        deadline = svc.clock.monotonic() + _GONE_WITHIN_S
        while True:
            svc.survey.forget([node])
            seen = NodeSeen.parse(svc.survey.ask(node, self.question))
            if seen.container is None or seen.container.id != container.id:
                return
            if svc.clock.monotonic() > deadline:
                raise NodeTimeout(
                    what=f"{node}: container {container.id[:12]} is there {_GONE_WITHIN_S:.0f} s after its removal",
                    why=done.stderr.strip() or "the daemon removes a large container in the background",
                    fix=f"look at `docker ps -a` on {node}, then run the same command again",
                    context={"node": node, "found": seen.container.how_it_is, "wanted": "gone"},
                )
            svc.clock.sleep(_POLL_S)


@dataclass(frozen=True)
class NoteLaunches:
    """Write down what is about to be started, on each node, so that its container can be known as ours."""

    launches: tuple[Launch, ...]
    run: RunId
    folder: RunFolder

    def perform(self, svc: Services, progress: Progress) -> None:
        by_node = {launch.node: launch for launch in self.launches}
        on_each(tuple(by_node), lambda node: self._note(svc, by_node[node]), doing="noting the launch")

    def _note(self, svc: Services, launch: Launch) -> None:
        write = {self.folder.launch: LaunchRecord.of(launch, self.run).as_dict()}
        # What an earlier container came to is no longer true.
        remove = [self.folder.container, self.folder.ready, self.folder.chat]
        svc.nodes[launch.node].call(Program("run_file", {"write": write, "remove": remove}, sudo=True))


@dataclass(frozen=True)
class MakeKey:
    """A key for a public API, unless the head has one already. It is never shown; where it lies is."""

    node: NodeName
    path: str

    def perform(self, svc: Services, progress: Progress) -> None:
        text = engine_key_file(secrets.token_urlsafe(32)).decode()
        made = svc.nodes[self.node].call(
            Program("api_key", {"path": self.path}, secrets={"file": Secret(text)}, sudo=True)
        )
        word = "made" if made["is_new"] else "kept"
        progress(f"API key {word}: on {self.node} in {self.path} (only root reads it)")


@dataclass(frozen=True)
class StartRanks:
    """Run the launches, all at once, and note the ids of the containers.

    A command of ours that was cut off may still be starting the very same container on the node: that one is taken.
    """

    launches: tuple[Launch, ...]
    run: RunId
    folder: RunFolder
    question: Question

    def perform(self, svc: Services, progress: Progress) -> None:
        by_node = {launch.node: launch for launch in self.launches}
        on_each(tuple(by_node), lambda node: self._start(svc, by_node[node]), doing="starting the engine")

    def _start(self, svc: Services, launch: Launch) -> None:
        node = svc.nodes[launch.node]
        done = node.run(Command(launch.argv, sudo=True, timeout_s=_RUN_TIMEOUT_S))
        identifier = done.stdout.strip() if done.succeeded else self._started_meanwhile(svc, launch)
        if identifier is None:
            raise _not_started(launch, done.exit_code, done.stderr)
        write = {self.folder.container: {"id": identifier, "container": launch.container, "at": svc.clock.now()}}
        node.call(Program("run_file", {"write": write}, sudo=True))

    def _started_meanwhile(self, svc: Services, launch: Launch) -> str | None:
        """The id of a running container that equals this launch, if one is there or comes up in a moment."""
        wanted = LaunchRecord.of(launch, self.run)
        deadline = svc.clock.monotonic() + _COMES_UP_WITHIN_S
        while True:
            svc.survey.forget([launch.node])
            found = NodeSeen.parse(svc.survey.ask(launch.node, self.question)).container
            if found is None or not found.came_of(wanted) or found.status not in ("created", "running") or found.error:
                return None  # with an error it is the one that Docker has just refused to start
            if found.is_running:
                return found.id
            if svc.clock.monotonic() > deadline:
                return None
            svc.clock.sleep(_POLL_S)


def _not_started(launch: Launch, exit_code: int, words: str) -> EngineError:
    """Docker's own codes: 125 the daemon refused, 126 and 127 the image's program cannot be run or is not there."""
    known = find_failure(words)
    meaning = {
        125: "the Docker daemon refused this container",
        126: "the image's program cannot be executed",
        127: "the image has no such program",
    }.get(exit_code, "docker run failed")
    return EngineError(
        what=f"{launch.node}: rank {launch.node_rank} was not started: {meaning}",
        why=known.meaning if known else words.strip(),
        fix=known.fix if known else "put right what Docker says, then run the same command again",
        context={
            "node": launch.node,
            "found": f"exit code {exit_code}" + (f": {words.strip()}" if known else ""),
            "wanted": "a running container",
            "command": " ".join(launch.argv[:6]) + " ...",
        },
    )
