"""An operator at the lab: types k3deploy commands, kills them at a chosen moment, reads the store and the nodes."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from k3deploy.domain import events as ev
from tests.lab import assets, checkpoint
from tests.lab.folders import REPOSITORY
from tests.lab.lab import Lab

K3DEPLOY = (sys.executable, "-m", "k3deploy")
# No command of the lab's tests takes longer; a hang must end a test, not the machine's patience.
DEADLINE_S = 600.0


@dataclass(frozen=True)
class Said:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


@dataclass
class Operator:
    """`extra_env` goes on top of the lab's environment."""

    lab: Lab
    extra_env: Mapping[str, str] = field(default_factory=dict)

    def k3deploy(self, *words: str) -> Said:
        done = self.lab.exec([*K3DEPLOY, *words], env=self.extra_env, timeout_s=DEADLINE_S)
        return Said(done.returncode, done.stdout, done.stderr)

    def killed_in(self, phase: str, *words: str) -> str:
        """Start a command and SIGKILL it at the first line that shows a step of `phase`. Returns what it had said.

        Raises AssertionError when the command ended before it came there.
        """
        process = subprocess.Popen(
            self.lab.exec_argv([*K3DEPLOY, *words]),
            cwd=self.lab.folder.work,
            env=self.lab.exec_env(self.extra_env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        timer = threading.Timer(DEADLINE_S, process.kill)
        timer.start()
        said: list[str] = []
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line)
                if _phase_of(line) == phase:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
                    return "".join(said)
            process.wait()
            raise AssertionError(f"ended with {process.returncode} before phase {phase}:\n{''.join(said)}")
        finally:
            timer.cancel()
            process.kill()
            process.stdout.close()

    @property
    def store_url(self) -> str:
        return self.extra_env.get("K3DEPLOY_STORE") or str(self.lab.folder.work / ".k3deploy")

    def events(self) -> list[ev.Event]:
        """All events of the one run that the store knows, in order."""
        dump = self.lab.exec(
            [sys.executable, "-m", "tests.lab.dump_events", self.store_url], cwd=REPOSITORY, env=self.extra_env
        )
        assert dump.returncode == 0, dump.stderr
        head, *lines = dump.stdout.splitlines()
        assert head.startswith("run "), head
        assert not any(line.startswith("run ") for line in lines), "more than one run"
        return [event for line in lines if (event := ev.from_json(line)) is not None]

    def make_bucket(self, name: str) -> None:
        """In the lab's S3 server, which starts empty."""
        code = f"import boto3; boto3.client('s3').create_bucket(Bucket={name!r})"
        done = self.lab.exec([sys.executable, "-c", code])
        assert done.returncode == 0, done.stderr

    def fill_bucket(self, url: str, variant: str) -> None:
        """Make s3://bucket/prefix of the lab's S3 server a mirror of a checkpoint variant."""
        folder = assets.hub_root(variant) / checkpoint.REPO
        done = self.lab.exec([sys.executable, "-m", "tests.lab.fill_bucket", str(folder), url], cwd=REPOSITORY)
        assert done.returncode == 0, done.stderr

    def inventories(self) -> dict[str, dict[str, object]]:
        with ThreadPoolExecutor(len(self.lab.nodes)) as pool:
            found = pool.map(lambda node: node.inventory(), self.lab.nodes)
            return {node.name: inventory for node, inventory in zip(self.lab.nodes, found, strict=True)}


def _phase_of(line: str) -> str:
    """The third column of a progress line: `00:07  gpu-01  storage  ...`."""
    words = line.split()
    return words[2] if len(words) > 3 and words[0].count(":") >= 1 else ""


def steps_after_success(events: Sequence[ev.Event]) -> list[tuple[str, str, str]]:
    """(phase, target, step) of every step that was begun although its unit had been done before."""
    done: set[tuple[str, str]] = set()
    again: list[tuple[str, str, str]] = []
    for event in events:
        if isinstance(event, ev.Verified):
            done.add((event.phase, event.target))
        elif isinstance(event, ev.StepStarted) and (event.phase, event.target) in done:
            again.append((event.phase, event.target, event.step))
    return again
